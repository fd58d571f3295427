/** What the page says: the contract's codes in a person's words. An unknown code is shown as it is. */

const REASONS = {
  cut: "connection lost, trying again",
  silence: "no sign of life, trying again",
  offline: "this device is offline",
  bad_frame: "a broken event came, reading it again",
  bad_cursor: "starting over",
  token_expired: "renewing the permission to read",
  max_age: "renewing the connection",
  draining: "the gateway restarts",
  lagging: "this reader was too slow, going on",
  overloaded: "the gateway is full, waiting",
  database: "the gateway waits for its database",
  wake: "reconnecting",
};

const ATTEMPTS = {
  lease_expired: "the worker was lost",
  transient_error: "the attempt failed in a way that can pass",
  throttled: "the provider asked to wait",
  released: "the worker was shut down and handed the job back",
  unknown_retry: "nobody can tell how the last call ended",
  reattached: "a new worker took over",
};

const WAITING = {
  no_worker: "No worker takes this kind of job at the moment. It starts as soon as one does.",
  run_at: "This job starts later.",
  provider: "All places at its provider are taken. This job starts when one is free.",
  global: "All places are taken. This job starts when one is free.",
  tenant: "This tenant's places are taken. This job starts when one is free.",
};

const REFUSALS = {
  401: "This browser may not read this job. Reload the page to get a new session.",
  403: "This browser may not read this job.",
  404: "This job is not known here: it belongs to another browser, or its database was replaced.",
  410: "This job's text was erased or is past its retention.",
};

const RETRY_REFUSALS = {
  quota_exceeded: "The money for this is used up, so nothing was started. Have the quota raised, then press Retry.",
  not_finished: "This job has not ended yet, so nothing was started. Reload the page to see how it goes on.",
  already_finished: "This job has succeeded, so there is nothing to try again. Reload the page to see its text.",
  idempotency_key_reused: "The gateway took this for another wish, so nothing was started. Press Retry once more.",
  queue_full: "Too many jobs are waiting already, so nothing was started.",
};

const RETRY_REFUSED_BY_STATUS = {
  403: "This browser may not start jobs. Reload the page to get a new session.",
  404: "This job is not known here any more. Start a new job with its text.",
  410: "The text that this job was made from is erased or past its retention. Start a new job with it.",
};

/** @param {import("./outlive.js").State} state */
export function connectionWords({ name, reason, retryMs }) {
  if (name === "ended") return "complete";
  if (name !== "reconnecting") return name;
  const next = retryMs >= 1000 ? `, next try in ${Math.round(retryMs / 1000)} s` : "";
  return `${REASONS[reason] ?? reason}${next}`;
}

export function attemptWords({ attempt, reason, resumes_after: lastKept }) {
  const why = ATTEMPTS[reason] ?? reason;
  if (reason === "reattached") return `Attempt ${attempt}: ${why}; the text goes on.`;
  const what = lastKept > 0 ? "What came after the last checkpoint" : "The text so far";
  return `Attempt ${attempt}: ${why}. ${what} is void and is written again.`;
}

export function waitingWords(waitingFor) {
  return WAITING[waitingFor?.split(":")[0]] ?? "";
}

export function refusalWords({ status, reason }) {
  return REFUSALS[status] ?? `The gateway refused to show this job (${reason}).`;
}

/** Why a job was not tried again, and what to do. @param {import("./api.js").Problem} problem @param {boolean} online */
export function retryRefusalWords({ status, code, message, retryAfterSeconds }, online) {
  if (status === 0 && !online) return "This device is offline. Press Retry when it is back; no second job comes of it.";
  if (status === 0) return "The gateway does not answer. Press Retry again in a moment; no second job comes of it.";
  const words = RETRY_REFUSALS[code] ?? RETRY_REFUSED_BY_STATUS[status] ?? message;
  return retryAfterSeconds === null ? words : `${words} Press Retry again in ${secondsWords(retryAfterSeconds)}.`;
}

function secondsWords(seconds) {
  if (seconds > 90) return `${Math.ceil(seconds / 60)} minutes`;
  return seconds === 1 ? "a second" : `${Math.ceil(seconds)} seconds`;
}

export function originWords({ provider, model }) {
  if (isScripted(provider)) return "Follows a script: no model has thought about this answer.";
  if (provider === "extractive") return "No language model: sentences chosen from your own text.";
  return [provider, model].filter(Boolean).join(", ");
}

/** Whether a provider of the demo answers, which does what a menu of the page says. */
export function isScripted(provider) {
  return provider === "scripted" || provider === "scripted-background";
}

/** A section is in work while those before it are done; other kinds say themselves what they count. */
export function progressWords({ done, total, label }, kind) {
  const section = done < total ? `Section ${done + 1} of ${total}` : "";
  const place = kind === "analyze" ? section : `${done} of ${total}`;
  return [place, label].filter(Boolean).join(": ");
}

export function failureWords(error) {
  if (!error) return "The job failed.";
  const code = error.message.includes(error.code) ? "" : ` (${error.code})`;
  return `The job failed: ${error.message}${code}`;
}

/** @param {string} status @param {number} characters */
export function endWords(status, characters) {
  if (status === "succeeded") return `Finished. ${characters.toLocaleString("en")} characters.`;
  return status === "failed" ? "The job failed." : "The job was cancelled.";
}
