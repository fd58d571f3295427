import assert from "node:assert/strict";
import { test } from "node:test";
import { AttemptLog } from "../../../web-demo/attempt-log.js";
import { storyWords, summaryWords } from "../../../web-demo/attempt-words.js";
import { Transcript } from "../../../web-demo/outlive.js";

/** The events of a job, numbered from 1, as `follow` tells them. */
function told(...events) {
  const [transcript, log] = [new Transcript(), new AttemptLog()];
  events.forEach(([event, data], place) => tell(transcript, log, { id: place + 1, event, data }));
  return { transcript, log, next: (event, data) => tell(transcript, log, { id: transcript.lastEventId + 1, event, data }) };
}

function tell(transcript, log, event) {
  log.apply(event, transcript.apply(event));
}

const queued = ["status", { status: "queued" }];
const begins = (attempt, reason, lastKept = 0) => ["attempt", { attempt, reason, resumes_after: lastKept }];
const says = (text) => ["chunk", { text }];
const external = (attempt, outcome, call = 1) => ["external", { attempt, call, outcome }];
const scheduled = (reason) => ["status", { status: "scheduled", run_at: "2026-01-31T09:00:07.000Z", reason }];
const failed = (code, errorClass) => ["failed", { status: "failed", attempt: 1, error: { code, class: errorClass, message: "" } }];
const ends = ({ log }) => log.list.map(({ end }) => end);

test("a job without an attempt has none, whatever else happens to it", () => {
  const later = ["status", { status: "scheduled", run_at: "2026-01-31T09:00:00.000Z", reason: "run_at" }];
  const job = told(later, ["cancel_requested", { by: "user" }], ["cancelled", { status: "cancelled", attempt: 0 }]);
  assert.deepEqual(job.log.list, []);
});

test("the reason of the next attempt says how the one before ended", () => {
  const before = { lease_expired: "lost", released: "released", unknown_retry: "unknown", transient_error: "failed" };
  for (const [reason, end] of Object.entries({ ...before, throttled: "throttled", tomorrow: "tomorrow" })) {
    assert.deepEqual(ends(told(queued, begins(1, "started"), begins(2, reason))), [end, "running"]);
  }
});

test("a wait ends the attempt before it, and nothing changes that later", () => {
  const job = told(queued, begins(1, "started"), external(1, "failed"), scheduled("throttled"));
  assert.deepEqual(ends(job), ["throttled"]);
  assert.match(storyWords(job.log.list[0], "coming"), /Provider call: failed\. The next attempt begins at \d.*or soon after\.$/);
  assert.match(storyWords(job.log.list[0], "came"), /The job waited until \d/);
  job.next("cancelled", { status: "cancelled", attempt: 1 });
  assert.deepEqual(ends(job), ["throttled"]);
  assert.equal(job.log.over, true);
  assert.match(storyWords(job.log.list[0], "never"), /The job ended before another attempt\.$/);
});

test("the end of the job is that of its last attempt", () => {
  const cases = [[failed("worker_lost", "unknown"), "lost"], [failed("worker_lost", "exhausted"), "lost"],
    [failed("read_timeout", "unknown"), "unknown"], [failed("released_too_often", "exhausted"), "released"],
    [failed("http_500", "exhausted"), "failed"], [["succeeded", { status: "succeeded", attempt: 1 }], "succeeded"],
    [["cancelled", { status: "cancelled", attempt: 1 }], "cancelled"]];
  for (const [end, word] of cases) assert.deepEqual(ends(told(queued, begins(1, "started"), end)), [word]);
});

test("text is counted by characters and void by what the next attempt dropped", () => {
  const kept = told(queued, begins(1, "started"), says("kept "), says("void \u{1f6a2}"), begins(2, "lease_expired", 3), says("b"));
  assert.deepEqual(kept.log.list.map(({ written, voided }) => [written, voided]), [[11, 6], [1, 0]]);
  assert.match(storyWords(kept.log.list[0], "came"), /11 characters of text, the last 6 void\.$/);
  assert.match(storyWords(kept.log.list[1], "coming"), /1 character of text\.$/);
  const all = told(queued, begins(1, "started"), says("a"), ["chunk", { text: "not text", channel: "reasoning" }], begins(2, "released"));
  assert.match(storyWords(all.log.list[0], "came"), /1 character of text, all void\.$/);
});

test("calls are counted by how they ended, each with its own attempt", () => {
  const job = told(queued, begins(1, "started"), external(1, "succeeded", 1), external(1, "succeeded", 2), external(1, "unknown", 3),
    begins(2, "lease_expired"), external(2, "tomorrow"), external(9, "failed"));
  assert.match(storyWords(job.log.list[0], "came"), /3 provider calls: 2 answered; 1 without a known end\./);
  assert.match(storyWords(job.log.list[1], "coming"), /Provider call: tomorrow\.$/);
});

test("a log that is read from its start again tells the same again", () => {
  const job = told(queued, begins(1, "started"), says("a"), begins(2, "lease_expired"));
  const before = structuredClone(job.log.list);
  const again = new Transcript();
  [queued, begins(1, "started"), says("a"), begins(2, "lease_expired")].forEach(([event, data], place) =>
    tell(again, job.log, { id: place + 1, event, data }));
  assert.deepEqual(job.log.list, before);
});

test("one line tells them all", () => {
  const list = (...words) => words.map((end) => ({ end }));
  assert.equal(summaryWords(list("running")), "1 attempt: running");
  assert.equal(summaryWords(list("lost", "running")), "2 attempts: lost, then running");
  assert.equal(summaryWords(list("lost", "failed", "lost", "succeeded")), "4 attempts, the last: succeeded");
});
