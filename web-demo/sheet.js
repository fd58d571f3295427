/**
 * The growing text. A chunk is only ever appended, once a frame, and the text lies in blocks of some thousand
 * characters: the browser lays a block out again whole for each append, and skips those far above (demo.css).
 */

const NEWLINE_FROM = 4_000; // UTF-16 units: the first newline behind so many ends a block unseen
const SPACE_FROM = 16_000; // a paragraph that long breaks at a space
const MOST = 24_000; // and a word that long anywhere: 1,000,000 letters in one block freeze Chromium for seconds
const NEAR_BLOCKS = 3; // blocks at the end keep their true height, so that following the end does not jump
const AT_END_PX = 48; // two lines: nobody scrolls to the exact pixel
const VOID_SHOWN = 20_000; // characters of a void text that stay visible until the new one comes
const VOID_MS = 1_500; // and for so long once it was seen: a new attempt may write within a blink

/**
 * @param {string} text @param {number} filled what the block already holds
 * @returns {number} where in the text the block ends, -1 if it does not
 */
export function blockEnd(text, filled) {
  const [newlineFrom, spaceFrom, last] = [NEWLINE_FROM, SPACE_FROM, MOST].map((most) => Math.max(0, most - filled));
  const newline = text.slice(newlineFrom, last).indexOf("\n");
  if (newline >= 0) return newlineFrom + newline + 1;
  const space = text.slice(spaceFrom, last).search(/\s/);
  if (space >= 0) return spaceFrom + space + 1;
  if (text.length <= last) return -1;
  const splitsPair = last > 0 && (text.charCodeAt(last - 1) & 0xfc00) === 0xd800;
  return splitsPair ? last - 1 : last;
}

export class Sheet {
  #scroller; #output; #void;
  #pending = "";
  #filled = 0;
  #lastTop = 0;
  #voidUntil = 0; // of performance.now(); 0 while no frame has shown the void text
  #forgetting = 0;
  following = true;

  /** @param {{scroller: HTMLElement, output: HTMLElement, voided: HTMLElement}} parts @param {() => void} scrolled */
  constructor({ scroller, output, voided }, scrolled) {
    [this.#scroller, this.#output, this.#void] = [scroller, output, voided];
    scroller.addEventListener("scroll", () => this.#noteScroll() ?? scrolled(), { passive: true });
  }

  append(text) {
    this.#pending += text;
  }

  /** Begin again with `text`; what became void stays visible, struck out, until something new is written. */
  replace(text, dropped) {
    this.clearVoid();
    this.#output.replaceChildren();
    this.#void.textContent = dropped.slice(-VOID_SHOWN);
    [this.#pending, this.#filled] = [text, 0];
    if (!dropped) this.flush();
    else this.#write();
  }

  /** Write what has come. Call it once a frame. */
  flush() {
    if (this.#pending) this.#letGoOfVoid();
    else if (!this.#voidUntil && this.#void.firstChild) this.#voidUntil = performance.now() + VOID_MS;
    this.#write();
    if (this.following) this.#toEnd();
  }

  clearVoid() {
    clearTimeout(this.#forgetting);
    this.#forgetting = this.#voidUntil = 0;
    this.#void.textContent = "";
  }

  // A replay brings the void text and the new one in one frame: then there is nothing to show.
  #letGoOfVoid() {
    const leftMs = this.#voidUntil - performance.now();
    if (leftMs <= 0) this.clearVoid();
    else if (!this.#forgetting) this.#forgetting = setTimeout(() => this.#forget(), leftMs);
  }

  #forget() {
    this.clearVoid();
    if (this.following) this.#toEnd();
  }

  goToEnd() {
    this.following = true;
    this.#toEnd();
  }

  /** Whether text lies below what is in sight, and nobody is being taken there. */
  get hasMoreBelow() {
    return !this.following && this.#below > AT_END_PX;
  }

  goToStart() {
    this.following = false;
    this.#scroller.scrollTop = 0;
  }

  #write() {
    while (this.#pending) {
      const end = blockEnd(this.#pending, this.#filled);
      const part = end < 0 ? this.#pending : this.#pending.slice(0, end);
      this.#block().append(part);
      this.#pending = this.#pending.slice(part.length);
      this.#filled = end < 0 ? this.#filled + part.length : 0;
    }
  }

  #block() {
    if (this.#filled > 0) return this.#output.lastElementChild;
    const block = document.createElement("div");
    this.#output.append(block);
    this.#output.children[this.#output.childElementCount - 1 - NEAR_BLOCKS]?.classList.add("far");
    return block;
  }

  #toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#lastTop = this.#scroller.scrollTop;
  }

  get #below() {
    return this.#scroller.scrollHeight - this.#scroller.scrollTop - this.#scroller.clientHeight;
  }

  // Only a person scrolls up; content that grows below or settles above must not end the following.
  #noteScroll() {
    const { scrollTop } = this.#scroller;
    if (this.#below <= AT_END_PX) this.following = true;
    else if (scrollTop < this.#lastTop - 1) this.following = false;
    this.#lastTop = scrollTop;
  }
}
