/**
 * The browser client of Outlive: follow one job's event log until it ends, whatever happens to the connection.
 *
 *   import { follow, JobMemory } from "./outlive.js";
 *   const handle = follow({
 *     jobId: "0199...",                               // or url: job.events_url
 *     onChange: (change) => change.type === "append" ? box.append(change.text) : redraw(handle.transcript.text),
 *     onState: (state) => label(state.name),          // live, reconnecting, then how it stopped
 *   });
 *   await handle.finished;                            // handle.close() stops reading; the job goes on
 *
 * Two parts. A Transcript turns events into text by the rules of docs/protocol.md 4 and is the only place that knows
 * the cursor, so text and cursor cannot drift apart: a new Transcript replays from the start, one restored by
 * Transcript.from(JSON.parse(saved)) goes on behind its own text. A Follower keeps an EventSource open for it.
 *
 *   connecting -> live    terminal event -> ended; `reconnect` event or silence -> wait -> connect;
 *        ^         |      a cut: the browser tries again by itself
 *        |         | CLOSED: the browser gave up and will not say why
 *        +------ probe    401 -> getToken(); bad_cursor -> from the start; 204 -> ended;
 *                         403, 404, 410 -> refused; anything else -> wait -> connect
 */

const HEARTBEAT_MS = 15_000; // the server's default, OUTLIVE_HEARTBEAT_SECONDS
const SILENT_HEARTBEATS = 2.5; // one heartbeat late and one lost is still a living connection
const BACKOFF_FIRST_MS = 1_000; // as the shortest `retry:` of the server
const BACKOFF_MOST_MS = 30_000; // a reader that waits longer looks broken to the person before it
const SERVER_WAIT_MOST_MS = 300_000; // bounds a nonsensical retry_ms or Retry-After
const PROBE_MS = 10_000; // a probe that hangs is a network that hangs
const TOKENS_IN_A_ROW = 3; // so many fresh tokens refused: asking for another will not help
const TERMINAL = ["succeeded", "failed", "cancelled"];
const LOGGED = ["status", "attempt", "chunk", "data", "progress", "cancel_requested", "external", "snapshot"];
const LAST_STATES = ["ended", "refused", "closed"];
const FINAL_STATUS = [400, 401, 403, 404, 406, 410];

/**
 * @typedef {{id: number, event: string, data: any}} LogEvent one event of the log; id is its seq
 * @typedef {{type: "none"} | {type: "append", text: string} | {type: "replace", text: string, dropped: string}} Change
 *   what an event did to the text; in a replace, text is all of it and dropped what has become void
 * @typedef {object} State
 * @property {"connecting"|"live"|"reconnecting"|"ended"|"refused"|"closed"} name
 * @property {string} [reason] cut, silence, offline, bad_frame, token_expired, a `reconnect` event's, a problem's code
 * @property {number} [retryMs] @property {number} [status]
 */

/** The server said no. `status` is the HTTP status, `code` that of the problem document. */
export class Refused extends Error {
  constructor(status, code, retryAfterMs = 0) {
    super(`The server answered ${status} (${code}). Check the job's id and whose token asks for it.`);
    Object.assign(this, { status, code, retryAfterMs });
  }
}

/** The text of one job as its events tell it, together with the cursor up to which it was told. */
export class Transcript {
  lastEventId = 0;
  attempt = 0;
  /** @type {string|null} the job's status as far as the log says */
  status = null;
  /** @type {any} data of the terminal event, or null before it */
  outcome = null;
  /** @type {{id: number, text: string}[]} ids stay beside the text: a later attempt may void a part of it */
  pieces = [];
  /** @type {LogEvent[]} data, progress and chunks of other channels that still hold */
  notes = [];

  /** @param {any} saved what JSON.parse made of a stored Transcript; anything else gives an empty one */
  static from(saved) {
    const fresh = new Transcript();
    const whole = Number.isSafeInteger(saved?.lastEventId) && Array.isArray(saved.pieces) && Array.isArray(saved.notes);
    return whole ? Object.assign(fresh, saved) : fresh;
  }

  get text() {
    return this.pieces.map((piece) => piece.text).join("");
  }

  /** @param {LogEvent} event @returns {Change|null} null: not above the last id, so seen before and ignored */
  apply({ id, event, data }) {
    if (!Number.isSafeInteger(id) || id <= this.lastEventId || this.outcome) return null;
    this.lastEventId = id;
    if (["data", "progress"].includes(event) || data.channel !== undefined) this.notes.push({ id, event, data });
    if (event === "attempt") return this.#begin(data);
    if (event === "snapshot") return this.#replaceBy(id, data);
    if (event === "status") this.status = data.status;
    if (TERMINAL.includes(event)) [this.status, this.outcome] = [event, data];
    if (event !== "chunk" || data.channel !== undefined) return { type: "none" };
    this.pieces.push({ id, text: data.text });
    return { type: "append", text: data.text };
  }

  #begin({ attempt, resumes_after: lastKept, reason }) {
    [this.attempt, this.status] = [attempt, "running"];
    if (reason === "reattached") return { type: "none" };
    this.notes = this.notes.filter((note) => note.id <= lastKept);
    const firstVoid = this.pieces.findIndex((piece) => piece.id > lastKept);
    if (firstVoid < 0) return { type: "none" };
    const dropped = this.pieces.splice(firstVoid).map((piece) => piece.text).join("");
    return { type: "replace", text: this.text, dropped };
  }

  #replaceBy(id, { text, attempt }) {
    this.pieces = [{ id, text }];
    this.attempt = attempt ?? this.attempt;
    return { type: "replace", text, dropped: "" };
  }
}

/**
 * @typedef {object} FollowOptions
 * @property {string} [jobId] the job; needed unless `url` is given
 * @property {string} [url] the job's `events_url`, with or without its token
 * @property {string} [api] where the API lives, default "/api/ai"
 * @property {() => Promise<string|null>} [getToken] a fresh read token; default: ask for the job again with this
 *   page's cookie. An error with a `status` of 403, 404 or 410 ends the following, any other is tried again
 * @property {Transcript} [transcript] where to go on; default: the start
 * @property {number} [heartbeatMs] the server's heartbeat interval, default 15000
 * @property {string[]} [events] further event names that the caller wants to see
 * @property {(state: State) => void} [onState] every change of the connection
 * @property {(change: Change, transcript: Transcript) => void} [onChange] after each event; also after a start over
 * @property {(event: LogEvent, transcript: Transcript, change: Change) => void} [onEvent] each event of the log, once,
 *   with what it did to the text
 * @property {any} [platform] where EventSource, fetch, timers and page events come from; default globalThis
 */

/** Follow a job until its terminal event. @param {FollowOptions} options */
export function follow(options) {
  return new Follower(options);
}

class Follower {
  /** @type {State} */
  state = { name: "connecting" };
  #source = null;
  #failures = 0; // connections in a row that brought nothing new
  #tokensRefused = 0;
  #turn = 0; // raised by every decision; an answer that belongs to an older one is dropped
  #heardAt = 0;
  #timers = { retry: 0, watchdog: 0 };
  #options; #platform; #url; #needsToken; #resolve;

  constructor(options) {
    if (!options.url && !options.jobId) throw new TypeError("follow() needs a jobId or the job's events_url.");
    this.#options = { heartbeatMs: HEARTBEAT_MS, api: "/api/ai", ...options };
    this.transcript = options.transcript ?? new Transcript();
    this.#platform = options.platform ?? globalThis;
    this.#url = this.#absolute(options.url ?? `${this.#options.api}/jobs/${options.jobId}/events`);
    this.#needsToken = !this.#url.searchParams.has("token");
    /** @type {Promise<State>} resolves with the last state: ended, refused or closed */
    this.finished = new Promise((resolve) => (this.#resolve = resolve));
    this.#listenToPage("addEventListener");
    this.#schedule(0);
  }

  /** Stop reading. The job is not touched. */
  close() {
    this.#stop({ name: "closed" });
  }

  #retry(reason, retryMs) {
    if (LAST_STATES.includes(this.state.name)) return; // a callback may have closed us just now
    this.#schedule(retryMs);
    this.#reconnecting(reason, retryMs);
  }

  #schedule(delayMs) {
    this.#drop();
    this.#timers.retry = this.#platform.setTimeout(() => this.#connect(), delayMs);
  }

  #reconnecting(reason, retryMs) {
    const offline = this.#platform.navigator?.onLine === false;
    this.#become({ name: "reconnecting", reason: offline ? "offline" : reason, retryMs });
  }

  #backoffMs() {
    const most = Math.min(BACKOFF_MOST_MS, BACKOFF_FIRST_MS * 2 ** Math.min(this.#failures++, 10));
    return most / 2 + (this.#platform.Math.random() * most) / 2;
  }

  async #connect() {
    const turn = this.#drop();
    try {
      const token = this.#needsToken ? await (this.#options.getToken?.() ?? this.#tokenOfJob()) : null;
      if (turn !== this.#turn) return;
      if (token) this.#url.searchParams.set("token", token);
      this.#needsToken = false;
      this.#open();
    } catch (error) {
      if (turn === this.#turn) this.#judge(error);
    }
  }

  async #tokenOfJob() {
    const job = await this.#ask(new URL(this.#url.pathname.replace(/\/events$/, ""), this.#url));
    return this.#absolute(job.events_url).searchParams.get("token");
  }

  #open() {
    const source = new this.#platform.EventSource(this.#urlAtCursor().href);
    this.#source = source;
    this.#heardAt = this.#platform.performance.now();
    this.#watch();
    source.onopen = () => this.#become({ name: "live" });
    source.onerror = () => this.#cut(source);
    for (const name of [...LOGGED, ...TERMINAL, "heartbeat", "reconnect", ...(this.#options.events ?? [])]) {
      source.addEventListener(name, (frame) => this.#take(name, frame));
    }
  }

  #cut(source) {
    if (source.readyState === 2) this.#probe();
    else this.#reconnecting("cut");
  }

  #take(name, frame) {
    this.#heardAt = this.#platform.performance.now();
    const data = parsed(frame.data);
    if (typeof data !== "object" || data === null) return this.#retry("bad_frame", this.#backoffMs());
    if (name === "reconnect") return this.#obey(data);
    if (name === "heartbeat") return this.#prosper();
    const event = { id: Number(frame.lastEventId), event: name, data };
    const change = this.transcript.apply(event);
    return change ? this.#tell(event, change) : undefined;
  }

  #tell(event, change) {
    this.#prosper();
    try {
      this.#options.onEvent?.(event, this.transcript, change);
      this.#options.onChange?.(change, this.transcript);
    } finally {
      if (this.transcript.outcome) this.#stop({ name: "ended" }); // also where a callback threw
    }
  }

  #prosper() {
    this.#failures = this.#tokensRefused = 0;
  }

  // `reconnect`: the server says when, so that thousands of readers do not come back at once.
  #obey({ reason = "reconnect", retry_ms: retryMs }) {
    if (reason === "token_expired") this.#needsToken = true;
    this.#retry(reason, bounded(retryMs) ?? this.#backoffMs());
  }

  /** A native EventSource cannot tell 401 from 404 or 204, so the same URL is asked once as JSON. */
  async #probe() {
    const turn = this.#drop();
    this.#reconnecting("cut");
    const url = this.#urlAtCursor();
    url.searchParams.set("limit", "1");
    const verdict = await this.#ask(url).catch((error) => error);
    if (turn === this.#turn) this.#judge(verdict);
  }

  // A page of events, a Refused, or whatever error a network without an answer gives.
  #judge({ finished, events, status, code, retryAfterMs = 0 }) {
    if (finished && events.length === 0) return this.#stop({ name: "ended" });
    if (status === 401 && this.#tokensRefused < TOKENS_IN_A_ROW) return this.#renew();
    if (code === "bad_cursor" && this.transcript.lastEventId > 0) return this.#startOver();
    if (FINAL_STATUS.includes(status)) return this.#stop({ name: "refused", reason: code, status });
    return this.#retry("cut", Math.max(this.#backoffMs(), retryAfterMs));
  }

  #renew() {
    this.#needsToken = true;
    this.#retry("token_expired", this.#tokensRefused++ === 0 ? 0 : this.#backoffMs());
  }

  #startOver() {
    Object.assign(this.transcript, new Transcript());
    this.#options.onChange?.({ type: "replace", text: "", dropped: "" }, this.transcript);
    this.#retry("bad_cursor", 0);
  }

  #stop(state) {
    if (LAST_STATES.includes(this.state.name)) return;
    this.#drop();
    this.#listenToPage("removeEventListener");
    this.#become(state);
    this.#resolve(state);
  }

  /** Let go of the connection, of what is planned, and of answers still under way. */
  #drop() {
    this.#source?.close();
    this.#source = null;
    this.#platform.clearTimeout(this.#timers.retry);
    this.#platform.clearTimeout(this.#timers.watchdog);
    return ++this.#turn;
  }

  // One timer that looks at a clock: setting one anew for each of 100,000 replayed events costs more than the events.
  #watch() {
    const leftMs = this.#heardAt + this.#options.heartbeatMs * SILENT_HEARTBEATS - this.#platform.performance.now();
    if (leftMs <= 0) return void this.#retry("silence", this.#backoffMs());
    this.#platform.clearTimeout(this.#timers.watchdog);
    this.#timers.watchdog = this.#platform.setTimeout(() => this.#watch(), leftMs);
  }

  #listenToPage(how) {
    for (const event of ["online", "pageshow"]) this.#platform[how]?.(event, this.#wake);
    this.#platform.document?.[how]("visibilitychange", this.#wake);
  }

  // Timers sleep in hidden tabs and the back/forward cache closes connections; both end with one of these.
  #wake = ({ type, persisted }) => {
    if (type === "pageshow" && !persisted) return;
    if (type === "visibilitychange" && this.#platform.document.visibilityState !== "visible") return;
    const waiting = this.#source === null && this.state.name === "reconnecting";
    if (type !== "visibilitychange" || waiting) this.#retry("wake", 0); // back online: the old socket may be half open
    else if (this.#source) this.#watch();
  };

  #become(state) {
    this.state = state;
    this.#options.onState?.(state);
  }

  #absolute(url) {
    return new URL(url, this.#platform.document?.baseURI ?? this.#platform.location?.href);
  }

  #urlAtCursor() {
    const url = new URL(this.#url);
    url.searchParams.set("last_event_id", String(this.transcript.lastEventId));
    return url;
  }

  async #ask(url) {
    const how = { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(PROBE_MS) };
    const answer = await this.#platform.fetch(url.href, { ...how, cache: "no-store", credentials: "same-origin" });
    if (answer.status === 204) return { finished: true, events: [] };
    const body = parsed(await answer.text()) ?? {};
    const retryAfterMs = bounded(Number(answer.headers.get("Retry-After")) * 1000) ?? 0;
    if (!answer.ok) throw new Refused(answer.status, body.code ?? `http_${answer.status}`, retryAfterMs);
    return body;
  }
}

function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function bounded(ms) {
  return Number.isFinite(ms) && ms >= 0 ? Math.min(ms, SERVER_WAIT_MOST_MS) : null;
}

/**
 * The ids of this browser's jobs, over reloads. Holds ids and the caller's own notes, never a text: a text without its
 * cursor would be doubled on replay. Where storage is full or forbidden it remembers until the page goes.
 */
export class JobMemory {
  #unsaved = [];

  /** @param {Storage|null} [storage] @param {string} [key] @param {number} [most] oldest go first beyond so many */
  constructor(storage = browserStorage(), key = "outlive.jobs", most = 200) {
    Object.assign(this, { storage, key, most });
  }

  /** @returns {{jobId: string, [note: string]: any}[]} newest first */
  list() {
    const saved = parsed(this.storage?.getItem(this.key) ?? "null");
    return (Array.isArray(saved) ? saved : this.#unsaved).filter((entry) => typeof entry?.jobId === "string");
  }

  /** @param {string} jobId @param {Record<string, any>} [note] kept beside the id, for a title or a time */
  add(jobId, note = {}) {
    this.#save([{ ...note, jobId }, ...this.list().filter((entry) => entry.jobId !== jobId)].slice(0, this.most));
  }

  /** @param {string} jobId */
  forget(jobId) {
    this.#save(this.list().filter((entry) => entry.jobId !== jobId));
  }

  #save(entries) {
    this.#unsaved = entries;
    try {
      this.storage?.setItem(this.key, JSON.stringify(entries));
    } catch {
      this.storage = null; // full or forbidden: an old saved list must not win over what is known now
    }
  }
}

// Reading the property may throw where the browser forbids storage.
function browserStorage() {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}
