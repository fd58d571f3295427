import assert from "node:assert/strict";
import { test } from "node:test";
import { blockEnd } from "../../../web-demo/sheet.js";
import { countCharacters, titleOf } from "../../../web-demo/source.js";

/** Cut a text that arrives in parts of `step` units as the sheet does. */
function blocks(text, step) {
  const done = [""];
  for (let from = 0; from < text.length; from += step) {
    let pending = text.slice(from, from + step);
    while (pending) {
      const end = blockEnd(pending, done.at(-1).length);
      done.push(done.pop() + (end < 0 ? pending : pending.slice(0, end)));
      if (end >= 0) done.push("");
      pending = end < 0 ? "" : pending.slice(end);
    }
  }
  return done;
}

const texts = {
  lines: "a line\n".repeat(20_000),
  sentences: "A sentence without a break. ".repeat(10_000),
  "one word": "ы".repeat(100_000),
  "emoji only": "😀".repeat(60_000),
};

for (const [name, text] of Object.entries(texts)) {
  for (const step of [2, 700, text.length]) {
    test(`${name} in steps of ${step}: nothing lost, no block too long, no pair split`, () => {
      const cut = blocks(text, step);
      assert.equal(cut.join(""), text);
      assert.ok(cut.every((block) => block.length <= 24_000));
      assert.ok(cut.every((block) => block.isWellFormed()));
      assert.ok(cut.length > 3);
    });
  }
}

test("characters are code points, as the gateway counts", () => {
  assert.equal(countCharacters("aы😀e\u0301\r\n"), 7);
  assert.equal(countCharacters("\ud83d"), 1);
  assert.equal(countCharacters("\ud83d\ud83d\ude00"), 2);
});

test("a title is the first line that says something, short and whole", () => {
  assert.equal(titleOf("\n\n# Heading here \nmore"), "Heading here");
  assert.equal(titleOf("   "), "Untitled");
  assert.ok(titleOf("😀".repeat(100)).isWellFormed());
});
