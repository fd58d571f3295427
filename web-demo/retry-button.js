/**
 * The button that tries an ended job again, as a new job. It stands away from Cancel: the second half of a double click
 * on the one must not fall on the other, which comes when the first one goes.
 */

import { Problem, retryJob } from "./api.js";
import { JobMemory } from "./outlive.js";
import { retryRefusalWords } from "./words.js";

const at = (id) => document.getElementById(id);

export class RetryButton {
  #jobId = "";
  #asking = false;
  #wishes = new JobMemory(undefined, "outlive.retries"); // by the old job's id: the key of a wish without an answer
  #tell;
  #made;

  /**
   * @param {(words: string, bad?: boolean) => void} tell what a person should read about it
   * @param {(job: any, oldId: string) => void} made there is a new job
   */
  constructor(tell, made) {
    [this.#tell, this.#made] = [tell, made];
    at("retry").addEventListener("click", () => this.#ask());
  }

  open(jobId) {
    this.#jobId = jobId;
    this.#become(false);
    this.show(false);
  }

  /** @param {boolean} possible whether the job has ended without a result, as far as is known */
  show(possible) {
    at("retry").hidden = !possible;
  }

  async #ask() {
    if (this.#asking) return;
    const jobId = this.#jobId;
    this.#become(true);
    this.#tell("Asked to try it again.");
    try {
      const job = await retryJob(jobId, this.#keyFor(jobId));
      this.#wishes.forget(jobId);
      this.#made(job, jobId);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      this.#refused(problem, jobId);
    }
  }

  // Kept before anything is sent: after a reload in mid-request, and in another tab, it is the same wish and makes one job.
  #keyFor(jobId) {
    const kept = this.#wishes.list().find((wish) => wish.jobId === jobId)?.key;
    if (typeof kept === "string") return kept;
    const key = crypto.randomUUID();
    this.#wishes.add(jobId, { key });
    return key;
  }

  // A conflict ends the wish, whose key is good for nothing then. After any other answer it stays: who says that again
  // after one that was lost gets the job which that had made.
  #refused(problem, jobId) {
    if (problem.status === 409) this.#wishes.forget(jobId);
    if (jobId !== this.#jobId) return;
    this.#become(false);
    this.#tell(retryRefusalWords(problem, navigator.onLine), true);
  }

  // Disabled for assistive technology only: a button that is really disabled loses the focus.
  #become(asking) {
    this.#asking = asking;
    at("retry").textContent = asking ? "Retrying…" : "Retry";
    at("retry").setAttribute("aria-disabled", String(asking));
  }
}
