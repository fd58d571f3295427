/** One open job: its text, and what is known of its connection and attempts. */

import { getToken, resultText } from "./api.js";
import { AttemptsView } from "./attempts-view.js";
import { CancelButton } from "./cancel-button.js";
import { showKinship } from "./kinship.js";
import { follow } from "./outlive.js";
import { RetryButton } from "./retry-button.js";
import { Sheet } from "./sheet.js";
import { countCharacters } from "./source.js";
import { attemptWords, connectionWords, endWords, failureWords } from "./words.js";
import { originWords, progressWords, refusalWords, waitingWords } from "./words.js";

const HIDDEN_PAINT_MS = 250; // a hidden tab gets no animation frames; nobody looks, but its text should be right
const QUIET_REASONS = ["max_age", "token_expired", "wake"]; // routine: not worth reading aloud

const NOT_AT_FIRST = ["again", "origin", "notice", "reader-problem", "reader-empty", "progress-field", "job-status"];

const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");

export class Reader {
  #handle = null;
  #characters = 0;
  #painting = false;
  #lost = false;
  #changed;
  #sheet;
  #cancel;
  #retry;
  #attempts = new AttemptsView();
  #kind = ""; // of the open job, once a job object has told it
  #progress = null; // the last one told

  /**
   * @param {(jobId: string, status: string) => void} changed the log told a new status
   * @param {(job: any, oldId: string) => void} retried a new job is an old one again
   */
  constructor(changed, retried) {
    this.#changed = changed;
    const parts = { scroller: at("sheet"), output: at("text-output"), voided: at("void") };
    this.#sheet = new Sheet(parts, () => this.#showButtons());
    this.#cancel = new CancelButton((words, bad) => this.#remark(words, bad));
    this.#retry = new RetryButton((words, bad) => this.#remark(words, bad), retried);
    at("to-end").addEventListener("click", () => this.#sheet.goToEnd());
    at("copy").addEventListener("click", () => this.#copy());
  }

  /** @param {{jobId: string, title: string, status?: string, url?: string}} job */
  open({ jobId, title, status, url }) {
    this.#handle?.close();
    this.#clear(title);
    this.jobId = jobId;
    this.#cancel.open(jobId);
    this.#retry.open(jobId);
    this.#sheet.following = !["succeeded", "failed", "cancelled"].includes(status);
    this.#handle = follow({
      jobId,
      url,
      getToken: () => getToken(jobId),
      onState: (state) => this.#connection(state),
      onEvent: (event, _transcript, change) => this.#event(event, change),
      onChange: (change) => this.#change(change),
    });
    this.#connection(this.#handle.state);
  }

  /**
   * What a fresh job object tells beyond the log.
   * @param {import("./shelf.js").Entry} entry @param {import("./kinship.js").Kin} kin
   */
  describe({ title, job }, kin) {
    this.#entitle(title);
    this.#kind = job.kind;
    this.#showProgress();
    at("origin").textContent = originWords(job);
    at("origin").hidden = !originWords(job);
    showKinship(at("again"), kin);
  }

  /** Say why a job has not started; for a job asked about some seconds after it was made. */
  explainWait(job) {
    if (this.#handle?.transcript.attempt === 0) this.#note(waitingWords(job.waiting_for));
  }

  #clear(title) {
    this.#entitle(title);
    for (const id of NOT_AT_FIRST) at(id).hidden = true;
    at("facts").hidden = false;
    this.#check("");
    this.#attempts.clear();
    this.#characters = 0;
    this.#lost = false;
    [this.#kind, this.#progress] = ["", null];
    this.#sheet.replace("", "");
    this.#paintSoon();
  }

  #entitle(title) {
    document.title = `${title} · Outlive`;
    if (at("reader-title").textContent !== title) at("reader-title").textContent = title;
  }

  #change(change) {
    if (change.type === "append") {
      this.#sheet.append(change.text);
      this.#characters += countCharacters(change.text);
    } else if (change.type === "replace") {
      this.#sheet.replace(change.text, change.dropped);
      this.#characters = countCharacters(change.text);
    }
    this.#paintSoon();
  }

  #event({ id, event, data }, change) {
    this.#attempts.note({ id, event, data }, change);
    if (event === "attempt") this.#attempt(data);
    if (event === "progress") this.#showProgress(data);
    if (event === "cancel_requested") this.#cancel.noteAsked();
    if (event === "status" && data.status === "queued") this.#say("The job is queued.");
    if (["succeeded", "failed", "cancelled"].includes(event)) this.#end(event, data);
    if (this.#handle) this.#changed(this.jobId, this.#handle.transcript.status);
  }

  #attempt(data) {
    const again = data.attempt > 1 && data.reason !== "started";
    this.#note(again ? attemptWords(data) : "");
    this.#showProgress(null);
    this.#say(again ? attemptWords(data) : "The job is running.");
  }

  #showProgress(told = this.#progress) {
    this.#progress = told;
    at("progress-field").hidden = !(told?.total > 0);
    if (at("progress-field").hidden) return;
    [at("progress").max, at("progress").value] = [told.total, told.done];
    at("progress-label").textContent = at("progress-label").title = progressWords(told, this.#kind);
  }

  #end(status, outcome) {
    this.#showProgress(null);
    this.#check("");
    this.#sheet.clearVoid();
    this.#say(endWords(status, this.#characters));
    if (status === "failed") this.#problem(failureWords(outcome.error));
    if (status === "cancelled") this.#note("This job was cancelled.");
    if (status === "succeeded") this.#compare(outcome, this.#handle);
    if (status === "succeeded" && outcome.attempt > 1) this.#note(`Attempt ${outcome.attempt} finished the job.`);
  }

  async #compare(outcome, handle) {
    const stored = await resultText(outcome).catch(() => undefined);
    if (handle !== this.#handle || stored === undefined) return;
    const same = stored === handle.transcript.text;
    if (same) this.#check("Checked: the text streamed here equals the stored result.");
    else this.#check("The text streamed here differs from the stored result. Please report this.", true);
  }

  #connection(state) {
    at("connection").dataset.state = state.name;
    at("connection").textContent = connectionWords(state);
    if (state.name === "refused") this.#refused(state);
    if (state.name === "reconnecting" && !this.#lost && !QUIET_REASONS.includes(state.reason)) {
      this.#lost = true;
      this.#say("Connection lost, trying again.");
    }
    if (state.name === "live" && this.#lost) {
      this.#lost = false;
      this.#say("Connected again.");
    }
    this.#showButtons();
  }

  #refused(state) {
    this.#showProgress(null);
    this.#problem(refusalWords(state));
  }

  #paintSoon() {
    if (this.#painting) return;
    this.#painting = true;
    const paint = () => this.#paint();
    if (document.hidden) setTimeout(paint, HIDDEN_PAINT_MS);
    else requestAnimationFrame(paint);
  }

  #paint() {
    this.#painting = false;
    this.#sheet.flush();
    this.#attempts.flush();
    const { attempt, lastEventId, status, outcome } = this.#handle?.transcript ?? {};
    at("attempt").textContent = attempt ? String(attempt) : "–";
    at("last-event").textContent = number.format(lastEventId ?? 0);
    at("last-event").dataset.id = String(lastEventId ?? 0);
    at("characters").textContent = number.format(this.#characters);
    at("job-status").textContent = at("job-status").dataset.status = status ?? "";
    at("job-status").hidden = !status;
    at("sheet").setAttribute("aria-busy", String(!outcome));
    this.#cancel.show(Boolean(status) && !outcome && this.#handle.state.name !== "refused");
    this.#retry.show(Boolean(outcome) && status !== "succeeded");
    this.#showButtons();
  }

  #showButtons() {
    at("to-end").hidden = this.#characters === 0 || !this.#sheet.hasMoreBelow;
    at("copy").hidden = this.#characters === 0;
  }

  async #copy() {
    const words = await navigator.clipboard.writeText(this.#handle.transcript.text).then(
      () => "Text copied.",
      () => "The browser did not allow copying. Select the text instead.",
    );
    this.#remark(words);
  }

  #remark(words, bad = false) {
    this.#check(words, bad);
    this.#say(words);
  }

  #check(words, bad = false) {
    at("check").textContent = words;
    at("check").classList.toggle("bad", bad);
  }

  #note(words) {
    at("notice").textContent = words;
    at("notice").hidden = !words;
  }

  #problem(words) {
    at("reader-problem").textContent = words;
    at("reader-problem").hidden = false;
    this.#say(words);
  }

  #say(words) {
    at("announcer").textContent = words;
  }
}
