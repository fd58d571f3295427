/**
 * What each attempt of a job came to, as far as the job's own log tells it (docs/protocol.md 4 and 5).
 *
 * How an attempt ended stands in what follows it: a `status` with the time until which the job waits, the reason of the
 * next `attempt`, or the terminal event. A job that was put back at once writes nothing, so until the next attempt
 * begins its last one still counts as running here.
 */

import { countCharacters } from "./source.js";

/** How the attempt before ended, by the reason that the next one gives. */
const ENDS = {
  lease_expired: "lost",
  transient_error: "failed",
  throttled: "throttled",
  released: "released",
  unknown_retry: "unknown",
  reattached: "taken over",
};

/**
 * @typedef {object} Attempt
 * @property {number} number as the log counts them, from 1
 * @property {string} reason why it began
 * @property {string[]} calls outcomes of its provider calls, in the order of their ends
 * @property {number} written characters of the text that it wrote
 * @property {number} voided how many of the text's last characters became void by the next attempt
 * @property {string} end "running", or how it ended: lost, failed, throttled, released, unknown, succeeded, cancelled
 * @property {string} [waitsUntil] RFC 3339: the job waits until then, or has waited, before the next attempt
 */

export class AttemptLog {
  /** @type {Attempt[]} oldest first */
  list = [];
  /** The job has ended. */
  over = false;

  /**
   * @param {import("./outlive.js").LogEvent} event the next one of the log; the log's first begins everything anew
   * @param {import("./outlive.js").Change} change what it did to the text
   */
  apply({ id, event, data }, change) {
    if (id === 1) [this.list, this.over] = [[], false];
    if (event === "attempt") this.#begin(data, change);
    if (event === "external") this.list.find(({ number }) => number === data.attempt)?.calls.push(String(data.outcome));
    if (event === "status" && data.status === "scheduled") this.#close(endBefore(data.reason), data.run_at);
    if (change.type === "append" && this.#last) this.#last.written += countCharacters(change.text);
    if (["succeeded", "failed", "cancelled"].includes(event)) {
      this.over = true;
      this.#close(event === "failed" ? failedEnd(data.error) : event);
    }
  }

  get #last() {
    return this.list.at(-1);
  }

  #begin({ attempt, reason }, change) {
    if (change.type === "replace" && this.#last) this.#last.voided = countCharacters(change.dropped);
    this.#close(endBefore(reason));
    this.list.push({ number: attempt, reason: String(reason), calls: [], written: 0, voided: 0, end: "running" });
  }

  // The first word about an end stands: a job that is cancelled while it waits does not change how its attempt ended.
  #close(end, waitsUntil) {
    if (this.#last?.end === "running") Object.assign(this.#last, { end, waitsUntil });
  }
}

function endBefore(reason) {
  return ENDS[reason] ?? String(reason);
}

function failedEnd(error) {
  if (error?.code === "worker_lost") return "lost";
  if (error?.code === "released_too_often") return "released";
  return error?.class === "unknown" ? "unknown" : "failed";
}
