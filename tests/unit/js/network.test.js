/** outlive.js over a real socket with Node's own EventSource: the log is cut at any byte, and every event arrives once. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { follow } from "../../../web-demo/outlive.js";

const ROUNDS = 60;
const RETRY_LINE = "retry: 1\n\n"; // always arrives whole: without it a client waits its own three seconds
const WORDS = ["один ", "two ", "три\n", "😀", "\u2028", "event: x\n\n"];

function randomFrom(seed) {
  let state = seed + 1;
  return (below) => (state = (state * 48271) % 2147483647) % below;
}

/** A log with two attempts, the second of which voids what came after event 6. */
function makeLog(random) {
  const log = [["status", { status: "queued" }], ["attempt", { attempt: 1, resumes_after: 0, reason: "started" }]];
  const chunks = () => Array.from({ length: 5 + random(30) }, () => ["chunk", { text: WORDS[random(WORDS.length)] }]);
  log.push(...chunks());
  log.push(["attempt", { attempt: 2, resumes_after: 6, reason: "lease_expired" }], ...chunks());
  const text = [...log.slice(2, 6), ...log.slice(log.findLastIndex(([event]) => event === "attempt"))];
  const result = { text: text.filter(([event]) => event === "chunk").map(([, data]) => data.text).join("") };
  log.push(["succeeded", { status: "succeeded", attempt: 2, result }]);
  return log.map(([event, data], place) => ({ id: place + 1, event, data }));
}

function bodyAfter(log, cursor) {
  const frames = log.slice(cursor).map(({ id, event, data }) => `event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`);
  return Buffer.from(RETRY_LINE + frames.join(""));
}

/** Sends a random number of bytes of what is asked for, then breaks the socket or ends. */
async function serve(log, random) {
  const server = createServer((request, response) => {
    const query = new URL(request.url, "http://host").searchParams;
    const cursor = Number(request.headers["last-event-id"] ?? query.get("last_event_id"));
    const body = bodyAfter(log, cursor);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(body.subarray(0, RETRY_LINE.length + 1 + random(400)), () => {
      if (random(2)) response.end();
      else response.destroy();
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return server;
}

test(`${ROUNDS} logs, cut again and again`, async () => {
  for (let seed = 0; seed < ROUNDS; seed++) {
    const random = randomFrom(seed);
    const log = makeLog(random);
    const server = await serve(log, random);
    const seen = [];
    const url = `http://127.0.0.1:${server.address().port}/events?token=t`;
    const handle = follow({ url, onEvent: ({ id }) => seen.push(id) });
    assert.deepEqual(await handle.finished, { name: "ended" });
    assert.deepEqual(seen, log.map(({ id }) => id), `seed ${seed}`);
    assert.equal(handle.transcript.text, log.at(-1).data.result.text, `seed ${seed}`);
    server.closeAllConnections();
    await once(server.close(), "close");
  }
});
