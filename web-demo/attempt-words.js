/** An attempt in a person's words. An unknown code is shown as it is. */

const BEGAN = {
  started: "Began when a worker took the job.",
  lease_expired: "Began because the worker of the one before was lost.",
  transient_error: "Began because the one before had failed in a way that can pass.",
  throttled: "Began after the wait that the provider had asked for.",
  released: "Began because the worker of the one before was shut down and handed the job back.",
  unknown_retry: "Began because nobody can tell how the last call ended.",
  reattached: "Went on with the call of the one before.",
};

const CALLS = {
  succeeded: "answered",
  failed: "failed",
  unknown: "without a known end",
  cancelled: "stopped before it was sent",
  cancel_unconfirmed: "stopped by us, the provider may have gone on",
};

const MOST_IN_TURN = 3; // more ends than these make the summary longer than the list

const number = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit", second: "2-digit" });

/** All of them in a line. @param {import("./attempt-log.js").Attempt[]} attempts at least one */
export function summaryWords(attempts) {
  const ends = attempts.map(({ end }) => end);
  const count = attempts.length === 1 ? "1 attempt" : `${attempts.length} attempts`;
  if (attempts.length <= MOST_IN_TURN) return `${count}: ${ends.join(", then ")}`;
  return `${count}, the last: ${ends.at(-1)}`;
}

/**
 * Why it began, what its calls and its text came to, what was waited for.
 * @param {import("./attempt-log.js").Attempt} attempt @param {"coming"|"came"|"never"} next the attempt after it
 */
export function storyWords(attempt, next) {
  const began = BEGAN[attempt.reason] ?? `Began because of ${attempt.reason}.`;
  return [began, callsWords(attempt.calls), textWords(attempt), waitWords(attempt, next)].filter(Boolean).join(" ");
}

function callsWords(outcomes) {
  const counts = new Map();
  for (const outcome of outcomes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  const parts = [...counts].map(([outcome, count]) => [count, CALLS[outcome] ?? outcome]);
  if (outcomes.length === 0) return "";
  if (outcomes.length === 1) return `Provider call: ${parts[0][1]}.`;
  return `${outcomes.length} provider calls: ${parts.map(([count, words]) => `${count} ${words}`).join("; ")}.`;
}

function textWords({ written, voided }) {
  const characters = `${number.format(written)} ${written === 1 ? "character" : "characters"}`;
  if (voided === 0) return written ? `${characters} of text.` : "";
  if (voided === written) return `${characters} of text, all void.`;
  return `${characters} of text, the last ${number.format(voided)} void.`;
}

function waitWords({ waitsUntil }, next) {
  if (!waitsUntil) return "";
  if (next === "never") return "The job ended before another attempt.";
  const time = clock.format(new Date(waitsUntil));
  return next === "came" ? `The job waited until ${time}.` : `The next attempt begins at ${time} or soon after.`;
}
