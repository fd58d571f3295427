import assert from "node:assert/strict";
import { test } from "node:test";
import { Transcript, follow } from "../../../web-demo/outlive.js";
import { json, makePlatform, problem } from "./platform.js";

const EVENTS = "/api/ai/jobs/j1/events";
const JOB = { job_id: "j1", events_url: `${EVENTS}?token=fresh` };

/** Begin to follow and arrive at an open connection with two events and the text "ab". */
async function reading(answer, options = {}) {
  const platform = makePlatform(answer);
  const states = [];
  const handle = follow({ url: `${EVENTS}?token=t0`, platform, onState: (state) => states.push(state), ...options });
  await platform.clock.pass(0);
  platform.last.serverOpens();
  platform.last.serverSends("attempt", { attempt: 1, resumes_after: 0, reason: "started" }, 1);
  platform.last.serverSends("chunk", { text: "ab" }, 2);
  return { platform, states, handle };
}

const cursor = (source) => source.url.searchParams.get("last_event_id");
const token = (source) => source.url.searchParams.get("token");

test("it reads from the start to the terminal event and lets go of everything", async () => {
  const { platform, states, handle } = await reading();
  assert.equal(cursor(platform.sources[0]), "0");
  platform.last.serverSends("succeeded", { status: "succeeded", attempt: 1 }, 3);
  assert.deepEqual(await handle.finished, { name: "ended" });
  assert.equal(handle.transcript.text, "ab");
  assert.deepEqual(states.map(({ name }) => name), ["live", "ended"]);
  assert.equal(platform.last.readyState, 2);
  assert.equal(platform.clock.waiting, 0);
  assert.deepEqual(platform.listening, []);
});

test("with only a job id it asks for the job to learn the token", async () => {
  const platform = makePlatform(() => json(JOB));
  follow({ jobId: "j1", platform });
  await platform.clock.pass(0);
  assert.equal(platform.asked[0].pathname, "/api/ai/jobs/j1");
  assert.equal(token(platform.last), "fresh");
});

test("a cut is the browser's to mend; doubled events do no harm", async () => {
  const { platform, states, handle } = await reading();
  platform.last.serverCuts();
  assert.deepEqual(states.at(-1), { name: "reconnecting", reason: "cut", retryMs: undefined });
  platform.last.serverOpens();
  platform.last.serverSends("chunk", { text: "ab" }, 2).serverSends("chunk", { text: "c" }, 3);
  assert.equal(handle.transcript.text, "abc");
  assert.equal(platform.sources.length, 1);
});

test("CLOSED by a 503 is opened again behind its cursor, later each time, never before Retry-After", async () => {
  const { platform, states } = await reading(() => problem(503, "draining", { "Retry-After": "2" }));
  const waits = [];
  for (let round = 0; round < 8; round++) {
    platform.last.serverRefuses();
    await platform.clock.pass(0);
    waits.push(states.at(-1).retryMs);
    await platform.clock.pass(waits.at(-1));
    assert.equal(platform.sources.length, round + 2);
  }
  assert.deepEqual(waits, [2000, 2000, 3000, 6000, 12000, 22500, 22500, 22500]);
  assert.equal(cursor(platform.last), "2");
});

for (const [name, sign] of Object.entries({ event: ["chunk", { text: "c" }, 3], heartbeat: ["heartbeat", {}] })) {
  test(`a new ${name} makes the waits short again, an open connection alone does not`, async () => {
    const { platform, states } = await reading(() => problem(503, "draining"));
    for (const expected of [750, 1500]) {
      platform.last.serverOpens().serverRefuses();
      await platform.clock.pass(0);
      assert.equal(states.at(-1).retryMs, expected);
      await platform.clock.pass(expected);
    }
    platform.last.serverOpens().serverSends(...sign).serverRefuses();
    await platform.clock.pass(0);
    assert.equal(states.at(-1).retryMs, 750);
  });
}

test("an expired token is replaced by getToken", async () => {
  const { platform, handle } = await reading(() => problem(401, "unauthorized"), { getToken: async () => "t1" });
  platform.last.serverRefuses();
  await platform.clock.pass(0);
  assert.equal(token(platform.last), "t1");
  assert.equal(cursor(platform.last), "2");
  assert.equal(handle.state.name, "reconnecting");
});

test("tokens that are refused again and again end it", async () => {
  const { platform, handle } = await reading(() => problem(401, "unauthorized"), { getToken: async () => "bad" });
  for (let round = 0; round < 4; round++) {
    platform.last.serverRefuses();
    await platform.clock.pass(60_000);
  }
  assert.deepEqual(await handle.finished, { name: "refused", reason: "unauthorized", status: 401 });
});

test("a getToken that fails for a while is asked again", async () => {
  let calls = 0;
  const getToken = async () => {
    if (++calls < 3) throw new Error("no network");
    return "t3";
  };
  const { platform } = await reading(() => problem(401, "unauthorized"), { getToken });
  platform.last.serverRefuses();
  await platform.clock.pass(10_000);
  assert.equal(token(platform.last), "t3");
});

test("bad_cursor drops the text and starts over", async () => {
  const changes = [];
  const onChange = (change) => changes.push(change);
  const { platform, handle } = await reading(() => problem(400, "bad_cursor"), { onChange });
  platform.last.serverRefuses();
  await platform.clock.pass(0);
  assert.equal(cursor(platform.last), "0");
  assert.equal(handle.transcript.text, "");
  assert.deepEqual(changes.at(-1), { type: "replace", text: "", dropped: "" });
});

test("a callback that closes at the start over is obeyed", async () => {
  const onChange = (change) => change.type === "replace" && handle.close();
  const { platform, handle } = await reading(() => problem(400, "bad_cursor"), { onChange });
  platform.last.serverRefuses();
  await platform.clock.pass(60_000);
  assert.equal(handle.state.name, "closed");
  assert.equal(platform.sources.length, 1);
});

test("bad_cursor at the start is the server's last word", async () => {
  const platform = makePlatform(() => problem(400, "bad_cursor"));
  const handle = follow({ url: `${EVENTS}?token=t`, platform });
  await platform.clock.pass(0);
  platform.last.serverRefuses();
  assert.equal((await handle.finished).reason, "bad_cursor");
});

const nothingMore = {
  204: () => new Response(null, { status: 204 }),
  "an empty last page": () => json({ events: [], next: 2, finished: true }),
};

for (const [name, answer] of Object.entries(nothingMore)) {
  test(`${name} behind a stored text means that it is complete`, async () => {
    const { platform, handle } = await reading(answer);
    platform.last.serverRefuses();
    assert.deepEqual(await handle.finished, { name: "ended" });
  });
}

test("a finished job with events to come is read to its end", async () => {
  const { platform, handle } = await reading(() => json({ events: [{ id: 3 }], next: 3, finished: true }));
  platform.last.serverRefuses();
  await platform.clock.pass(1000);
  assert.equal(platform.sources.length, 2);
  assert.equal(handle.state.name, "reconnecting");
});

for (const [status, code] of [[404, "not_found"], [410, "erased"], [403, "forbidden"]]) {
  test(`${status} ends it and says so`, async () => {
    const { platform, handle } = await reading(() => problem(status, code));
    platform.last.serverRefuses();
    assert.deepEqual(await handle.finished, { name: "refused", reason: code, status });
  });
}

test("a probe without an answer, or answered by somebody else's page, is tried again", async () => {
  const loginPage = () => new Response("<html>Log in</html>", { status: 200 });
  for (const answer of [() => Promise.reject(new TypeError("network")), loginPage]) {
    const { platform, states } = await reading(answer);
    platform.last.serverRefuses();
    await platform.clock.pass(0);
    assert.equal(states.at(-1).name, "reconnecting");
    await platform.clock.pass(1000);
    assert.equal(platform.sources.length, 2);
  }
});

test("reconnect is obeyed to the millisecond, and token_expired brings a new token", async () => {
  const { platform, states } = await reading(undefined, { getToken: async () => "t1" });
  platform.last.serverSends("reconnect", { reason: "token_expired", retry_ms: 4321 });
  assert.deepEqual(states.at(-1), { name: "reconnecting", reason: "token_expired", retryMs: 4321 });
  await platform.clock.pass(4320);
  assert.equal(platform.sources.length, 1);
  await platform.clock.pass(1);
  assert.equal(token(platform.last), "t1");
});

test("silence of two and a half heartbeats opens a new connection; a heartbeat keeps the old one", async () => {
  const { platform, states } = await reading(undefined, { heartbeatMs: 1000 });
  await platform.clock.pass(2400);
  platform.last.serverSends("heartbeat", {});
  await platform.clock.pass(2400);
  assert.equal(platform.sources.length, 1);
  await platform.clock.pass(100);
  assert.equal(states.at(-1).reason, "silence");
  await platform.clock.pass(1000);
  assert.equal(cursor(platform.last), "2");
});

test("a heartbeat carries the last id and is still no event", async () => {
  const { platform, handle } = await reading();
  platform.last.serverSends("heartbeat", {});
  assert.equal(handle.transcript.lastEventId, 2);
});

test("a frame that is no JSON object is read again, not skipped", async () => {
  for (const broken of ['{"text": "b', "null", "7"]) {
    const { platform, handle } = await reading();
    platform.last.serverSends("chunk", broken, 3);
    platform.sources[0].serverSends("chunk", { text: "after" }, 4);
    await platform.clock.pass(1000);
    assert.equal(cursor(platform.last), "2");
    assert.equal(handle.transcript.text, "ab");
  }
});

test("a stored transcript goes on behind its own text", async () => {
  const platform = makePlatform();
  const transcript = Transcript.from({ lastEventId: 5, attempt: 1, pieces: [{ id: 5, text: "x" }], notes: [] });
  follow({ url: `${EVENTS}?token=t`, platform, transcript });
  await platform.clock.pass(0);
  assert.equal(cursor(platform.last), "5");
});

test("close stops everything, also from inside a callback", async () => {
  const onChange = (change, transcript) => transcript.lastEventId === 3 && handle.close();
  const { platform, handle } = await reading(undefined, { onChange });
  platform.last.serverSends("chunk", { text: "c" }, 3).serverSends("chunk", { text: "d" }, 4);
  assert.deepEqual(await handle.finished, { name: "closed" });
  assert.equal(handle.transcript.text, "abc");
  assert.equal(platform.clock.waiting, 0);
});

test("close during a probe is not undone by its answer", async () => {
  const { platform, handle } = await reading(() => problem(503, "draining"));
  platform.last.serverRefuses();
  handle.close();
  await platform.clock.pass(100_000);
  assert.equal(platform.sources.length, 1);
  assert.equal(handle.state.name, "closed");
});

test("the answer to a probe that was overtaken is dropped", async () => {
  let late;
  const { platform, handle } = await reading(() => new Promise((resolve) => (late = resolve)));
  platform.last.serverRefuses();
  platform.dispatchEvent(new Event("online"));
  await platform.clock.pass(0);
  platform.last.serverOpens();
  late(problem(404, "not_found"));
  await platform.clock.pass(0);
  assert.equal(handle.state.name, "live");
});

test("back online and out of the back/forward cache it opens at once", async () => {
  for (const event of [new Event("online"), Object.assign(new Event("pageshow"), { persisted: true })]) {
    const { platform } = await reading();
    platform.dispatchEvent(event);
    await platform.clock.pass(0);
    assert.equal(platform.sources.length, 2);
    assert.equal(platform.sources[0].readyState, 2);
  }
});

test("a tab that becomes visible looks at the clock its timers slept through", async () => {
  const { platform, handle } = await reading(undefined, { heartbeatMs: 1000 });
  platform.clock.nowMs = 60_000;
  platform.document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(handle.state.reason, "silence");
  await platform.clock.pass(1000);
  assert.equal(platform.sources.length, 2);
});

test("a callback that throws does not keep a finished job open", async () => {
  const onEvent = ({ event }) => {
    if (event === "succeeded") throw new Error("the page's own bug");
  };
  const { platform, handle } = await reading(undefined, { onEvent });
  platform.last.serverSends("succeeded", { status: "succeeded", attempt: 1 }, 3);
  assert.deepEqual(await handle.finished, { name: "ended" });
  assert.equal(platform.last.reported[0].message, "the page's own bug");
});

test("each event comes with what it did to the text", async () => {
  const told = [];
  const onEvent = ({ event }, { lastEventId }, change) => told.push([event, lastEventId, change.type]);
  const { platform } = await reading(undefined, { onEvent });
  platform.last.serverSends("attempt", { attempt: 2, resumes_after: 0, reason: "lease_expired" }, 3);
  assert.deepEqual(told, [["attempt", 1, "none"], ["chunk", 2, "append"], ["attempt", 3, "replace"]]);
});

test("it says what it needs", () => {
  assert.throws(() => follow({ platform: makePlatform() }), /jobId or the job's events_url/);
});
