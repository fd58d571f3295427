/** Which job is another one again: a line with a link under the title of the open job. */

import { when } from "./shelf.js";

/** @typedef {{before?: string, entry?: import("./shelf.js").Entry, after?: import("./shelf.js").Entry}} Kin */

/**
 * @param {HTMLElement} line @param {Kin} kin of the open job: the id of the one that it is again and what the list knows of
 *   that, and the newest one that is this one again
 */
export function showKinship(line, { before, entry, after }) {
  const parts = [];
  if (before) parts.push("Again of ", link(before, entry ? `the job of ${when(entry.at)}` : "an earlier job"), ending(entry));
  if (after) parts.push(before ? " Tried again: " : "Tried again: ", link(after.jobId, `the job of ${when(after.at)}`), ".");
  const told = parts.map((part) => part.href ?? part).join("");
  line.hidden = parts.length === 0;
  if (line.dataset.told === told) return; // a link that is made anew loses the focus
  line.dataset.told = told;
  line.replaceChildren(...parts);
}

function ending(entry) {
  const ends = { failed: ", which failed.", cancelled: ", which was cancelled." };
  return ends[entry?.status] ?? ".";
}

function link(jobId, words) {
  const anchor = document.createElement("a");
  anchor.href = `#job=${encodeURIComponent(jobId)}`;
  anchor.textContent = words;
  return anchor;
}
