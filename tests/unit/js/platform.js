/** A browser's surroundings with a clock that only moves when told to: EventSource as WHATWG describes it, fetch, timers. */

export const CONNECTING = 0;
export const OPEN = 1;
export const CLOSED = 2;

/** The parts of EventSource that a page can see. `server*` methods are what the network does to it. */
export class FakeEventSource {
  readyState = CONNECTING;
  reported = []; // errors of listeners: a browser reports them and goes on
  #listeners = new Map();
  #lastEventId = "";

  constructor(url, log) {
    this.url = new URL(url);
    log.push(this);
  }

  addEventListener(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  close() {
    this.readyState = CLOSED;
  }

  serverOpens() {
    this.readyState = OPEN;
    this.onopen?.(new Event("open"));
    return this;
  }

  /** A frame; without an id the last one sticks, as in the standard. */
  serverSends(event, data, id) {
    if (this.readyState === CLOSED) return this;
    if (id !== undefined) this.#lastEventId = String(id);
    const written = typeof data === "string" ? data : JSON.stringify(data);
    for (const listener of this.#listeners.get(event) ?? []) {
      try {
        listener(new MessageEvent(event, { data: written, lastEventId: this.#lastEventId }));
      } catch (error) {
        this.reported.push(error);
      }
    }
    return this;
  }

  /** The body ends or the socket breaks: the browser will try again by itself. */
  serverCuts() {
    if (this.readyState === CLOSED) return;
    this.readyState = CONNECTING;
    this.onerror?.(new Event("error"));
  }

  /** Any status but 200: the browser fails the connection for good and does not say why. */
  serverRefuses() {
    if (this.readyState === CLOSED) return;
    this.readyState = CLOSED;
    this.onerror?.(new Event("error"));
  }
}

class Clock {
  #timers = new Map();
  #next = 1;
  nowMs = 0;

  set(task, delayMs) {
    this.#timers.set(this.#next, { at: this.nowMs + (delayMs ?? 0), task });
    return this.#next++;
  }

  clear(id) {
    this.#timers.delete(id);
  }

  /** Move on, running what falls due in order, and let promises settle after each. */
  async pass(ms) {
    await settled();
    const end = this.nowMs + ms;
    for (let due = this.#due(end); due; due = this.#due(end)) {
      this.#timers.delete(due.id);
      this.nowMs = Math.max(this.nowMs, due.at);
      due.task();
      await settled();
    }
    this.nowMs = end;
    await settled();
  }

  get waiting() {
    return this.#timers.size;
  }

  #due(end) {
    const all = [...this.#timers].map(([id, timer]) => ({ id, ...timer })).filter(({ at }) => at <= end);
    return all.sort((one, other) => one.at - other.at || one.id - other.id)[0];
  }
}

/** Some turns of the event loop: reading the body of a Response takes more than one. */
export async function settled() {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** @param {(url: URL, how: any) => Response|Promise<Response>} answer what the server says to a fetch */
export function makePlatform(answer = () => problem(404, "not_found")) {
  const sources = [];
  const asked = [];
  const clock = new Clock();
  const page = new EventTarget();
  const listening = [];
  const document = Object.assign(new EventTarget(), { baseURI: "http://app.test/", visibilityState: "visible" });
  return {
    sources, asked, clock, document, listening,
    get last() { return sources.at(-1); },
    EventSource: class { constructor(url) { return new FakeEventSource(url, sources); } },
    fetch: async (url, how) => (asked.push(new URL(url)), answer(new URL(url), how)),
    setTimeout: (task, ms) => clock.set(task, ms),
    clearTimeout: (id) => clock.clear(id),
    performance: { now: () => clock.nowMs },
    Math: { random: () => 0.5 },
    navigator: { onLine: true },
    addEventListener: (event, listener) => (listening.push(event), page.addEventListener(event, listener)),
    removeEventListener: (event, listener) => (listening.pop(), page.removeEventListener(event, listener)),
    dispatchEvent: (event) => page.dispatchEvent(event),
  };
}

export function json(body, status = 200) {
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
}

export function problem(status, code, headers = {}) {
  const all = { "Content-Type": "application/problem+json", ...headers };
  return new Response(JSON.stringify({ status, code }), { status, headers: all });
}
