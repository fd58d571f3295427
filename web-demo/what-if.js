/** The menu of what a provider can do to a job: a scripted one does it, and says that it is none. */

import { listKinds } from "./api.js";
import { Wish } from "./wish.js";

const at = (id) => document.getElementById(id);

// What each of them is, scripted_provider/behaviour.py says; web-demo/scripted.py lists the same models.
const WISHES = [
  { model: "well?rate=12&pieces=52", words: "answers well", then: "The text comes, and the job succeeds." },
  {
    model: "cut?after=14&times=1&rate=12&pieces=52",
    words: "is cut off in mid-answer",
    then: "Nobody knows what became of the call. This kind may be repeated, so a second attempt answers; the first text is void.",
  },
  {
    provider: "scripted-background",
    model: "cut?after=14&rate=12&pieces=52",
    words: "is cut off, but goes on in the background",
    then: "A second attempt goes on with the same answer: no text is void, and nothing is paid twice.",
  },
  {
    model: "no-end?after=14&times=1&rate=12&pieces=52",
    words: "ends without saying that this is the end",
    then: "A clean end is no success without the provider's own mark: a second attempt answers.",
  },
  {
    model: "stall?after=14&times=1&rate=12&pieces=52",
    words: "falls silent",
    then: "After four seconds of silence, two minutes with real models, the call is given up and a second attempt answers.",
  },
  {
    model: "status?code=429&retry=5&times=1&rate=12&pieces=52",
    words: "is asked too much and says when to come back",
    then: "The job waits for at least as long as it was told, without using up an attempt, and then succeeds.",
  },
  {
    model: "status?code=503&times=2&rate=12&pieces=52",
    words: "is down for a while",
    then: "Two attempts fail at no cost, each waits longer, and the third one succeeds.",
  },
  {
    model: "error-200?times=1&rate=12&pieces=52",
    words: "says 200 and sends an error",
    then: "It counts as the error that it is, and a second attempt answers.",
  },
  { model: "refusal?rate=12&pieces=52", words: "refuses", then: "The job fails at once: asking again would only cost more." },
];

export class WhatIf {
  #created;
  #wish = new Wish();

  /** @param {(job: any, title: string) => void} created */
  constructor(created) {
    this.#created = created;
    at("what-if").addEventListener("submit", (event) => this.#submit(event));
    at("what-if-wish").addEventListener("change", () => this.#explain());
  }

  /** Show what this installation's scripted providers can do; without one there is no menu. */
  async offer() {
    const kinds = await listKinds().catch(() => new Map());
    const choices = kinds.get("chat")?.providers ?? {};
    const offered = WISHES.filter(({ provider = "scripted", model }) => modelsOf(choices[provider]).includes(model));
    at("what-if-wish").replaceChildren(...offered.map(({ words }) => new Option(`${words}?`, words)));
    at("what-if").hidden = offered.length === 0;
    this.#explain();
  }

  get #chosen() {
    return WISHES.find(({ words }) => words === at("what-if-wish").value);
  }

  #explain() {
    at("what-if-then").textContent = this.#chosen?.then ?? "";
  }

  async #submit(event) {
    event.preventDefault();
    const { provider = "scripted", model, words } = this.#chosen;
    const title = `What if the provider ${words}?`;
    at("what-if-problem").textContent = "";
    at("what-if-start").setAttribute("aria-disabled", "true");
    try {
      const input = { messages: [{ role: "user", content: title }] };
      const created = await this.#wish.send({ kind: "chat", provider, model, input, metadata: { title } });
      if (created) this.#created(created, title);
    } catch (problem) {
      at("what-if-problem").textContent = problem.message;
    } finally {
      at("what-if-start").removeAttribute("aria-disabled");
    }
  }
}

function modelsOf(choice) {
  return Array.isArray(choice) ? choice : (choice?.models ?? []);
}
