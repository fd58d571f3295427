/** The page put together: a form, the jobs of this browser, and one of them open. The address says which. */

import { Problem } from "./api.js";
import { Composer } from "./composer.js";
import { JobMemory } from "./outlive.js";
import { Reader } from "./reader.js";
import { Shelf } from "./shelf.js";
import { WhatIf } from "./what-if.js";

const REFRESH_MS = 4_000; // states of jobs that are not open; the open one is told by its own stream
const ONE_COLUMN = matchMedia("(max-width: 56rem)"); // as in demo.css
const memory = new JobMemory();
const shelf = new Shelf(memory);
const reader = new Reader((jobId, status) => shelf.setStatus(jobId, status), retried);
const composer = new Composer(created);
const whatIf = new WhatIf(created);
let refreshing = 0;
let told = false; // the gateway has said at least once what jobs there are

function created(job, title) {
  shelf.add(job, title);
  location.hash = `job=${job.job_id}`;
  show(); // before the scrolling: an open job is taller than none
  document.getElementById("reader-title").focus({ preventScroll: true });
  if (ONE_COLUMN.matches) document.querySelector(".reader").scrollIntoView({ block: "start" });
  plan();
}

// Whoever has opened another job meanwhile is not taken away from it.
function retried(job, oldId) {
  const title = shelf.get(oldId)?.title ?? job.metadata?.title ?? job.kind;
  if (oldId === reader.jobId) created(job, title);
  else shelf.add(job, title);
}

function selected() {
  return new URLSearchParams(location.hash.slice(1)).get("job");
}

function show() {
  const jobId = selected();
  if (!jobId || jobId === reader.jobId) return;
  const entry = shelf.get(jobId);
  const remembered = memory.list().find((one) => one.jobId === jobId);
  shelf.select(jobId);
  const title = entry?.title ?? remembered?.title ?? "A job";
  reader.open({ jobId, title, status: entry?.status, url: entry?.job?.events_url });
  if (entry?.job?.kind) reader.describe(entry, shelf.kinOf(jobId));
}

// An address may name a job that was made since the list was asked for.
function follow() {
  show();
  if (told && selected() && !shelf.get(selected())) refresh();
}

async function refresh() {
  try {
    await shelf.refresh();
    if (!told) begin();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    // The open job's own connection says that the gateway is away; the list keeps what it knew.
  }
  const open = shelf.get(reader.jobId);
  if (open?.job?.kind) {
    reader.describe(open, shelf.kinOf(open.jobId));
    reader.explainWait(open.job);
  }
  plan();
}

function plan() {
  clearTimeout(refreshing);
  if ((shelf.restless || !told) && !document.hidden) refreshing = setTimeout(refresh, REFRESH_MS);
}

function begin() {
  told = true;
  if (!selected() && shelf.newest) history.replaceState(null, "", `#job=${shelf.newest.jobId}`);
  show();
  composer.offer();
  whatIf.offer();
}

async function start() {
  await refresh();
  show(); // a job in the address is followed even when the list could not be had
}

addEventListener("hashchange", follow);
addEventListener("storage", refresh);
addEventListener("online", refresh);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
start();
