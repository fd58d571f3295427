import assert from "node:assert/strict";
import { test } from "node:test";
import { JobMemory } from "../../../web-demo/outlive.js";

/** The part of Storage that is used; `full` makes it refuse to write. */
function storage({ full = false, held = {} } = {}) {
  return {
    full,
    getItem: (key) => held[key] ?? null,
    setItem(key, value) {
      if (this.full) throw new DOMException("full", "QuotaExceededError");
      held[key] = value;
    },
  };
}

test("ids are there after a reload, newest first, each once", () => {
  const kept = storage();
  const memory = new JobMemory(kept);
  memory.add("a", { title: "A" });
  memory.add("b");
  memory.add("a", { title: "A again" });
  assert.deepEqual(new JobMemory(kept).list(), [{ title: "A again", jobId: "a" }, { jobId: "b" }]);
});

test("the oldest go first, and one can be forgotten", () => {
  const memory = new JobMemory(storage(), "k", 2);
  for (const id of ["a", "b", "c"]) memory.add(id);
  assert.deepEqual(memory.list().map(({ jobId }) => jobId), ["c", "b"]);
  memory.forget("c");
  assert.deepEqual(memory.list().map(({ jobId }) => jobId), ["b"]);
});

test("storage that is full or forbidden still remembers for this page", () => {
  const old = { "outlive.jobs": '[{"jobId": "old"}]' };
  for (const place of [null, storage({ full: true }), storage({ full: true, held: old })]) {
    const memory = new JobMemory(place);
    memory.add("a");
    memory.add("b");
    assert.deepEqual(memory.list().slice(0, 2).map(({ jobId }) => jobId), ["b", "a"]);
  }
});

test("foreign values in its place are no jobs", () => {
  for (const value of ["not json", "7", "{}", '[1, null, {"jobId": 5}]']) {
    assert.deepEqual(new JobMemory(storage({ held: { "outlive.jobs": value } })).list(), []);
  }
});
