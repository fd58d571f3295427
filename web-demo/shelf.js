/** The jobs of this browser: those it remembers, and those the gateway says it has. */

import { getJob, listJobs } from "./api.js";

const ASKED_AT_ONCE = 20; // remembered jobs outside the gateway's newest 200 are asked for one by one
const OVER = ["succeeded", "failed", "cancelled"];
const ENDED = [...OVER, "gone"];

const at = (id) => document.getElementById(id);
const clock = { hour: "2-digit", minute: "2-digit" };
const today = new Intl.DateTimeFormat(undefined, clock);
const earlier = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", ...clock });

/** @typedef {{jobId: string, title: string, at: string, status: string, job?: any}} Entry */

export class Shelf {
  #memory;
  /** @type {Map<string, Entry>} */ #entries = new Map();
  /** @type {Map<string, HTMLElement>} */ #rows = new Map();
  #current = "";

  /** @param {import("./outlive.js").JobMemory} memory */
  constructor(memory) {
    this.#memory = memory;
  }

  get(jobId) {
    return this.#entries.get(jobId);
  }

  get newest() {
    return [...this.#entries.values()].filter((entry) => entry.status !== "gone").sort(newestFirst)[0];
  }

  /** Whose retry a job is, and its own newest retry. @param {string} jobId @returns {import("./kinship.js").Kin} */
  kinOf(jobId) {
    const before = this.get(jobId)?.job?.retry_of ?? undefined;
    const after = [...this.#entries.values()].filter(({ job }) => job?.retry_of === jobId).sort(newestFirst)[0];
    return { before, entry: this.get(before), after };
  }

  /** True while some job may still change. */
  get restless() {
    return [...this.#entries.values()].some((entry) => !ENDED.includes(entry.status));
  }

  /** Ask the gateway. Throws a Problem; what is shown stays. */
  async refresh() {
    const jobs = new Map((await listJobs()).map((job) => [job.job_id, job]));
    const unsettled = this.#memory.list().filter(({ jobId }) => !ENDED.includes(this.get(jobId)?.status));
    const missing = unsettled.filter(({ jobId }) => !jobs.has(jobId));
    const found = await Promise.all(missing.slice(0, ASKED_AT_ONCE).map(({ jobId }) => jobOrGone(jobId)));
    for (const job of found) jobs.set(job.job_id, job);
    for (const job of jobs.values()) this.#learn(job);
    this.#show();
  }

  /** A job just made, or one opened by its address. */
  add(job, title) {
    this.#memory.add(job.job_id, { title, at: job.created_at });
    this.#learn(job);
    this.#show();
  }

  setStatus(jobId, status) {
    const entry = this.get(jobId);
    if (!entry || !status || entry.status === status) return;
    entry.status = status;
    this.#show();
  }

  select(jobId) {
    this.#current = jobId;
    this.#show();
  }

  #learn(job) {
    const remembered = this.#memory.list().find(({ jobId }) => jobId === job.job_id);
    if (job.status === "gone" && !remembered) return;
    const title = job.metadata?.title ?? remembered?.title ?? job.kind ?? "A job";
    const known = this.get(job.job_id)?.status;
    const ended = OVER.includes(known) && job.status !== "gone"; // the stream may be ahead of this answer, and an end stays
    const [status, created] = [ended ? known : job.status, job.created_at ?? remembered?.at ?? ""];
    this.#entries.set(job.job_id, { jobId: job.job_id, title: String(title), at: created, status, job });
  }

  #forget(jobId) {
    this.#memory.forget(jobId);
    this.#entries.delete(jobId);
    this.#show();
  }

  // Rows are kept by job, so that a refresh takes neither focus nor scroll position.
  #show() {
    const entries = [...this.#entries.values()].sort(newestFirst);
    for (const [jobId, row] of this.#rows) if (!this.#entries.has(jobId)) row.remove();
    entries.forEach((entry, place) => {
      const row = this.#row(entry);
      if (at("jobs").children[place] !== row) at("jobs").insertBefore(row, at("jobs").children[place] ?? null);
    });
    at("shelf-empty").hidden = entries.length > 0;
  }

  #row(entry) {
    const row = this.#rows.get(entry.jobId) ?? this.#newRow(entry);
    const link = row.querySelector("a");
    setText(link.querySelector(".title"), entry.title);
    setText(link.querySelector(".badge"), entry.status);
    link.querySelector(".badge").dataset.status = entry.status;
    setText(link.querySelector(".again"), this.#againWords(entry.job?.retry_of));
    if (entry.jobId === this.#current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    row.querySelector("button").hidden = entry.status !== "gone";
    return row;
  }

  #againWords(oldId) {
    if (!oldId) return "";
    const old = this.get(oldId);
    return old?.at ? `, again of ${when(old.at)}` : ", again of an earlier job";
  }

  #newRow({ jobId, title, at: created }) {
    const row = at("job-row").content.firstElementChild.cloneNode(true);
    row.dataset.job = jobId;
    row.querySelector("a").href = `#job=${jobId}`;
    row.querySelector("time").dateTime = created;
    setText(row.querySelector("time"), when(created));
    row.querySelector("button").setAttribute("aria-label", `Forget ${title}`);
    row.querySelector("button").addEventListener("click", () => this.#forget(jobId));
    this.#rows.set(jobId, row);
    return row;
  }
}

async function jobOrGone(jobId) {
  return getJob(jobId).catch((problem) => {
    if ([403, 404, 410].includes(problem.status)) return { job_id: jobId, status: "gone" };
    throw problem;
  });
}

function newestFirst(one, other) {
  return other.at.localeCompare(one.at) || other.jobId.localeCompare(one.jobId);
}

/** A moment in short, for a person here and today. @param {string} iso */
export function when(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  return (date.toDateString() === new Date().toDateString() ? today : earlier).format(date);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
