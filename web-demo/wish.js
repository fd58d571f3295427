/** One wish of a person: however often it is said, by two clicks or again after a lost answer, one job comes of it. */

import { createJob } from "./api.js";

export class Wish {
  #said = "";
  #key = "";

  /** @param {any} job @returns {Promise<any|null>} the job, null where something else was wished for meanwhile */
  async send(job) {
    const said = JSON.stringify(job);
    if (said !== this.#said) [this.#said, this.#key] = [said, crypto.randomUUID()];
    const key = this.#key;
    const created = await createJob(job, key);
    if (this.#key !== key) return null;
    this.#said = this.#key = "";
    return created;
  }
}
