import assert from "node:assert/strict";
import { test } from "node:test";
import { Transcript } from "../../../web-demo/outlive.js";

function told(...events) {
  const transcript = new Transcript();
  for (const [id, event, data] of events) transcript.apply({ id, event, data });
  return transcript;
}

const started = [2, "attempt", { attempt: 1, resumes_after: 0, reason: "started" }];

test("chunks are the text, other channels are not", () => {
  const transcript = told([1, "status", { status: "queued" }], started, [3, "chunk", { text: "a" }],
    [4, "chunk", { text: "hidden", channel: "reasoning" }], [5, "chunk", { text: "b" }]);
  assert.equal(transcript.text, "ab");
  assert.equal(transcript.attempt, 1);
  assert.deepEqual(transcript.notes.map((note) => note.id), [4]);
});

test("an id that was seen, or is none, changes nothing", () => {
  const transcript = told(started, [3, "chunk", { text: "a" }]);
  for (const id of [3, 2, 0, -1, NaN, 3.5]) assert.equal(transcript.apply({ id, event: "chunk", data: { text: "x" } }), null);
  assert.equal(transcript.text, "a");
  assert.equal(transcript.lastEventId, 3);
});

test("a new attempt voids chunk, data and progress after resumes_after and keeps the rest", () => {
  const transcript = told(started, [3, "chunk", { text: "keep " }], [4, "data", { name: "n", value: 1 }],
    [5, "chunk", { text: "void" }], [6, "progress", { done: 1, total: 2 }], [7, "data", { name: "n", value: 2 }]);
  const change = transcript.apply({ id: 8, event: "attempt", data: { attempt: 2, resumes_after: 4, reason: "lease_expired" } });
  assert.deepEqual(change, { type: "replace", text: "keep ", dropped: "void" });
  assert.deepEqual(transcript.notes.map((note) => note.id), [4]);
  transcript.apply({ id: 9, event: "chunk", data: { text: "again" } });
  assert.equal(transcript.text, "keep again");
});

test("a reattached attempt voids nothing", () => {
  const transcript = told(started, [3, "chunk", { text: "a" }]);
  const change = transcript.apply({ id: 4, event: "attempt", data: { attempt: 2, resumes_after: 3, reason: "reattached" } });
  assert.deepEqual(change, { type: "none" });
  assert.equal(transcript.text, "a");
});

test("a snapshot stands for the chunks up to its id", () => {
  const transcript = told(started, [3, "chunk", { text: "on" }]);
  const change = transcript.apply({ id: 9, event: "snapshot", data: { text: "once", attempt: 1 } });
  assert.deepEqual(change, { type: "replace", text: "once", dropped: "" });
  assert.equal(transcript.lastEventId, 9);
});

test("nothing follows the terminal event", () => {
  const transcript = told(started, [3, "chunk", { text: "a" }], [4, "succeeded", { status: "succeeded", attempt: 1 }]);
  assert.equal(transcript.apply({ id: 5, event: "chunk", data: { text: "late" } }), null);
  assert.equal(transcript.status, "succeeded");
  assert.equal(transcript.text, "a");
});

test("an unknown event moves the cursor and nothing else", () => {
  const transcript = told(started, [3, "tomorrow", { text: "?" }]);
  assert.equal(transcript.lastEventId, 3);
  assert.equal(transcript.text, "");
});

test("stored as one value it goes on, and a later attempt still finds its parts", () => {
  const before = told(started, [3, "chunk", { text: "keep " }], [4, "chunk", { text: "void" }]);
  const after = Transcript.from(JSON.parse(JSON.stringify(before)));
  assert.equal(after.text, "keep void");
  after.apply({ id: 5, event: "attempt", data: { attempt: 2, resumes_after: 3, reason: "lease_expired" } });
  assert.equal(after.text, "keep ");
});

test("a stored value that is not a transcript gives an empty one", () => {
  for (const saved of [null, 7, "x", {}, { lastEventId: 4 }, { lastEventId: "4", pieces: [], notes: [] }]) {
    assert.equal(Transcript.from(saved).lastEventId, 0);
  }
});
