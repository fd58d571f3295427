/** What the page asks of the gateway, with this browser's cookie. A failure is a Problem with words for a person. */

const SESSION = "outlive.session";
const ANSWER_MS = 30_000; // as long as the gateway gives a slow body before it says 408
const UNKNOWN = "The gateway answered in a way this page does not know. Look at its log, then reload.";

/** A problem document, or a network without an answer (status 0). */
export class Problem extends Error {
  constructor(status, code, words, retryAfterSeconds = null) {
    super(words);
    Object.assign(this, { status, code, retryAfterSeconds });
  }
}

/** @returns {Promise<any[]>} this browser's jobs, newest first, without results */
export async function listJobs() {
  return (await asked("/api/ai/jobs?limit=200")).jobs;
}

export function getJob(jobId) {
  return asked(`/api/ai/jobs/${encodeURIComponent(jobId)}`);
}

export async function getToken(jobId) {
  const { events_url: eventsUrl } = await getJob(jobId);
  return new URL(eventsUrl, document.baseURI).searchParams.get("token");
}

/** @param {any} job @param {string} key the same key for the same wish, however often it has to be said */
export function createJob(job, key) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  return asked("/api/ai/jobs", { method: "POST", headers, body: JSON.stringify(job) });
}

/** The job as it is after that; that it ends comes by its stream. Throws a Problem `already_finished` where it has. */
export function cancelJob(jobId) {
  return asked(`/api/ai/jobs/${encodeURIComponent(jobId)}/cancel`, { method: "POST" });
}

/** A new job that is this one again. @param {string} key as for createJob; the gateway forgets none */
export function retryJob(jobId, key) {
  const headers = { "Idempotency-Key": key };
  return asked(`/api/ai/jobs/${encodeURIComponent(jobId)}/retry`, { method: "POST", headers });
}

export async function resultText(outcome) {
  const result = outcome.result_url ? await asked(outcome.result_url) : outcome.result;
  return (result?.result ?? result)?.text;
}

/** @returns {Promise<{name: string, title: string, characters: number}[]>} */
export async function listDocuments() {
  const body = await asked("/demo/documents");
  return Array.isArray(body) ? body : body.documents;
}

export async function documentText(name) {
  return (await answered(`/demo/documents/${encodeURIComponent(name)}`)).text();
}

/** @returns {Promise<Map<string, any>>} the kinds that workers here have registered, by name; `available`: without naming a provider */
export async function listKinds() {
  const { kinds } = await asked("/api/ai/kinds");
  return new Map(kinds.map((one) => [one.kind, one]));
}

async function asked(url, how = {}) {
  const answer = await answered(url, how);
  return answer.json().catch(() => {
    throw new Problem(answer.status, "no_json", UNKNOWN);
  });
}

async function answered(url, how = {}) {
  if (!visitedBefore()) await newSession();
  let answer = await sent(url, how);
  if (answer.status === 401 && (await newSession())) answer = await sent(url, how);
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function sent(url, how) {
  try {
    return await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS), ...how });
  } catch {
    throw new Problem(0, "no_answer", "The gateway does not answer. Nothing is lost; try again in a moment.");
  }
}

// Two tabs that open at once must not make two users: the second finds the first one's cookie.
function newSession() {
  return navigator.locks ? navigator.locks.request(SESSION, makeSession) : makeSession();
}

async function makeSession() {
  if (visitedBefore() && (await sent("/api/ai/jobs?limit=1", {})).status !== 401) return true;
  const { ok } = await sent("/demo/session", { method: "POST" });
  if (ok) visit();
  return ok;
}

// The cookie itself is out of a script's sight; that there was one saves the first visit a refused request.
let visited = false;

function visitedBefore() {
  try {
    return visited || localStorage.getItem(SESSION) !== null;
  } catch {
    return visited; // storage is forbidden here; this page's own visit still counts
  }
}

function visit() {
  visited = true;
  try {
    localStorage.setItem(SESSION, "yes");
  } catch {
    // Forbidden or full: the next load asks for a session again, which the gateway answers with the same user.
  }
}

async function problemOf(answer) {
  const body = await answer.json().catch(() => ({}));
  const retryAfter = Number(answer.headers.get("Retry-After") ?? NaN); // a date is possible, but not from this gateway
  const details = (body.errors ?? []).map((error) => `${error.pointer ?? ""} ${error.message ?? ""}`.trim());
  const words = [body.detail || body.title || UNKNOWN, ...details].join(" ");
  return new Problem(answer.status, body.code ?? `http_${answer.status}`, words, retryAfter >= 0 ? retryAfter : null);
}
