/** The form: one text from wherever it came, what to do with it, and one idempotency key for one wish. */

import { documentText, listDocuments, listKinds } from "./api.js";
import { MOST_CHARACTERS, countCharacters, isEditable, readFile, titleOf } from "./source.js";
import { Wish } from "./wish.js";

const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");

export class Composer {
  #held = null; // {title, text}: a long text, kept out of the textarea
  #title = null; // of the file or document that filled the textarea
  #wish = new Wish();
  #created;

  /** @param {(job: any, title: string) => void} created */
  constructor(created) {
    this.#created = created;
    at("composer").addEventListener("submit", (event) => this.#submit(event));
    at("text").addEventListener("input", () => this.#typed());
    at("text").addEventListener("paste", (event) => this.#pasted(event));
    at("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("composer").requestSubmit();
    });
    at("file").addEventListener("change", (event) => this.#takeFile(event.target.files[0]));
    at("documents").addEventListener("change", (event) => this.#takeDocument(event.target));
    at("held-drop").addEventListener("click", () => this.#remove());
    at("kind").addEventListener("change", () => this.#showKind());
    addEventListener("pageshow", () => this.#count()); // a browser puts back what was typed before a reload
    this.#acceptDrops();
    this.#count();
  }

  /** Ask what this installation offers; without an answer the form stays as it is. */
  async offer() {
    const [documents, kinds] = await Promise.allSettled([listDocuments(), listKinds()]);
    for (const { name, title, characters } of documents.value ?? []) {
      at("documents").append(new Option(`${title} (${number.format(characters)})`, name));
    }
    at("documents-field").hidden = !documents.value?.length;
    for (const name of ["analyze", "chat"]) {
      const option = at("kind").querySelector(`[value=${name}]`);
      option.hidden = option.disabled = !kinds.value?.get(name)?.available;
    }
  }

  get text() {
    return this.#held?.text ?? at("text").value;
  }

  #put(text, title) {
    this.#held = isEditable(text) ? null : { text, title };
    this.#title = title;
    at("text").value = this.#held ? "" : text;
    at("text").hidden = Boolean(this.#held);
    at("held").hidden = !this.#held;
    at("held-name").textContent = this.#held?.title ?? "";
    at("held-start").textContent = this.#held?.text.slice(0, 400) ?? "";
    at("source").textContent = title ? `Taken from ${title}.` : "";
    this.#complain("");
    this.#count();
  }

  // A field that still names its document or file would not change when the same one is chosen again.
  #emptied() {
    at("file").value = at("documents").value = "";
    this.#title = null;
  }

  #remove() {
    this.#emptied();
    this.#put("", null);
    at("text").focus();
  }

  #typed() {
    if (at("text").value === "") this.#emptied();
    this.#count();
  }

  #pasted(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (isEditable(text)) return;
    event.preventDefault();
    this.#put(text, "Pasted text");
    at("held-drop").focus();
  }

  async #takeFile(file) {
    at("documents").value = "";
    if (file) await this.#take(file.name, () => readFile(file));
  }

  async #takeDocument({ value, selectedOptions }) {
    at("file").value = "";
    if (value) await this.#take(selectedOptions[0].text.replace(/ \([\d,]+\)$/, ""), () => documentText(value));
  }

  async #take(title, read) {
    try {
      this.#put(await read(), title);
    } catch (problem) {
      this.#complain(problem.message);
    }
  }

  #acceptDrops() {
    const zone = at("drop");
    const over = (event) => {
      event.preventDefault();
      zone.classList.toggle("over", event.type === "dragover");
    };
    for (const name of ["dragover", "dragleave", "drop"]) zone.addEventListener(name, over);
    zone.addEventListener("drop", ({ dataTransfer }) => {
      if (dataTransfer.files.length > 0) this.#takeFile(dataTransfer.files[0]);
      else this.#put(dataTransfer.getData("text/plain"), null);
    });
  }

  #count() {
    const characters = countCharacters(this.text);
    const over = characters - MOST_CHARACTERS;
    const bound = over > 0 ? `characters, ${number.format(over)} too many` : "of 1,000,000 characters";
    at("counter").textContent = `${number.format(characters)} ${bound}`;
    at("counter").classList.toggle("over", over > 0);
    at("text").setAttribute("aria-invalid", String(over > 0));
  }

  #showKind() {
    at("sentences-field").hidden = at("kind").value !== "summarize";
    at("text-label").textContent = at("kind").value === "chat" ? "Your question" : "Your text";
  }

  async #submit(event) {
    event.preventDefault();
    const complaint = this.#complaint();
    this.#complain(complaint);
    if (complaint) return;
    const title = this.#title ?? titleOf(this.text);
    at("start").setAttribute("aria-disabled", "true");
    try {
      const created = await this.#wish.send(this.#job(title));
      if (created) this.#created(created, title);
    } catch (problem) {
      this.#complain(problem.message);
    } finally {
      at("start").removeAttribute("aria-disabled");
    }
  }

  #job(title) {
    const kind = at("kind").value;
    const text = this.text;
    const inputs = {
      summarize: { text, sentences: at("sentences").valueAsNumber },
      analyze: { text },
      chat: { messages: [{ role: "user", content: text }] },
    };
    return { kind, input: inputs[kind], metadata: { title } };
  }

  #complaint() {
    const characters = countCharacters(this.text);
    const sentences = at("sentences").valueAsNumber;
    if (this.text.trim() === "") return "There is no text yet. Paste one, drop a file, or take one of the documents.";
    if (characters > MOST_CHARACTERS) return "The text is too long. A job takes up to 1,000,000 characters.";
    if (at("kind").value !== "summarize" || (Number.isInteger(sentences) && sentences >= 1 && sentences <= 50)) return "";
    return "Sentences must be a whole number from 1 to 50.";
  }

  #complain(words) {
    at("composer-problem").textContent = words;
  }
}
