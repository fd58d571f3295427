/** The list of the open job's attempts: a line that opens, right at each event and after a reload. */

import { AttemptLog } from "./attempt-log.js";
import { storyWords, summaryWords } from "./attempt-words.js";

const at = (id) => document.getElementById(id);

export class AttemptsView {
  #log = new AttemptLog();
  #stale = false;

  /** Another job is opened. */
  clear() {
    this.#log = new AttemptLog();
    this.#stale = true;
  }

  /** @param {import("./outlive.js").LogEvent} event @param {import("./outlive.js").Change} change */
  note(event, change) {
    this.#log.apply(event, change);
    this.#stale = true;
  }

  /** Show what has come. Call it once a frame. */
  flush() {
    if (!this.#stale) return;
    this.#stale = false;
    const { list } = this.#log;
    at("attempts").hidden = list.length === 0;
    if (list.length > 0) setText(at("attempts-summary"), summaryWords(list));
    while (at("attempt-list").childElementCount > list.length) at("attempt-list").lastElementChild.remove();
    list.forEach((attempt, place) => this.#fill(rowAt(place), attempt));
  }

  #fill(row, attempt) {
    const badge = row.querySelector(".badge");
    setText(row.querySelector(".attempt-number"), `Attempt ${attempt.number}`);
    setText(badge, attempt.end);
    badge.dataset.status = attempt.end;
    setText(row.querySelector(".attempt-story"), storyWords(attempt, this.#nextOf(attempt)));
  }

  #nextOf(attempt) {
    if (attempt !== this.#log.list.at(-1)) return "came";
    return this.#log.over ? "never" : "coming";
  }
}

function rowAt(place) {
  const rows = at("attempt-list");
  if (!rows.children[place]) rows.append(at("attempt-row").content.firstElementChild.cloneNode(true));
  return rows.children[place];
}

// What stands there already is left alone: somebody may have selected it.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
