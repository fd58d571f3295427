/** The button that cancels the open job: there while it can end so, and not to be pressed twice. */

import { Problem, cancelJob } from "./api.js";

const at = (id) => document.getElementById(id);

export class CancelButton {
  #jobId = "";
  #asked = false;
  #tell;

  /** @param {(words: string, bad?: boolean) => void} tell what a person should read about it */
  constructor(tell) {
    this.#tell = tell;
    at("cancel").addEventListener("click", () => this.#ask());
  }

  open(jobId) {
    this.#jobId = jobId;
    this.#become(false);
    this.show(false);
  }

  /** @param {boolean} possible whether the job has not ended, as far as is known */
  show(possible) {
    // A focused element that vanishes takes the place of a keyboard user with it.
    if (!possible && document.activeElement === at("cancel")) at("reader-title").focus({ preventScroll: true });
    at("cancel").hidden = !possible;
  }

  /** Somebody has, here or in another tab. */
  noteAsked() {
    this.#become(true);
  }

  async #ask() {
    if (this.#asked) return;
    const jobId = this.#jobId;
    this.#become(true);
    this.#tell("Asked to cancel.");
    try {
      await cancelJob(jobId);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (jobId === this.#jobId) this.#refused(problem);
    }
  }

  #refused(problem) {
    this.#become(false);
    this.#tell(problem.message, true);
  }

  // Disabled for assistive technology only: a button that is really disabled loses the focus.
  #become(asked) {
    this.#asked = asked;
    at("cancel").textContent = asked ? "Cancelling…" : "Cancel";
    at("cancel").setAttribute("aria-disabled", String(asked));
  }
}
