"""Kinds for `--handlers` that end their process, block it, or may not be started twice.

TALLY names a file to which every start of `dies` and `once` adds a line, so that a test can count them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio

from worker.handlers.kind import Json, Repeat, RunContext, kind
from worker.providers.provider import Message, Prompt

ANYTHING: dict[str, Json] = {"type": "object"}
STEPS = 6


def _count(run: RunContext) -> None:
    with Path(os.environ["TALLY"]).open("a", encoding="utf-8") as tally:
        tally.write(f"{run.job_id} {run.attempt}\n")


def _prompt(input: dict[str, Json]) -> Prompt:
    return Prompt((Message("user", str(input.get("say", "go on"))),))


@kind("note", input_schema=ANYTHING, repeat=Repeat.SAFE, works_with="none")
async def note(run: RunContext, input: dict[str, Json]) -> Json:
    """Over at once."""
    await run.emit("noted")
    return {"text": "noted"}


@kind("steps", input_schema=ANYTHING, repeat=Repeat.CHECKPOINT, works_with="none")
async def steps(run: RunContext, input: dict[str, Json]) -> Json:
    """Some time, with a checkpoint after each step."""
    first = run.checkpoint if isinstance(run.checkpoint, int) else 0
    for step in range(first, STEPS):
        await run.emit(f"step {step}, ")
        await anyio.sleep(0.1)
        await run.store_checkpoint(step + 1)
    return {"text": "".join(f"step {step}, " for step in range(STEPS))}


@kind("dies", input_schema=ANYTHING, repeat=Repeat.SAFE, works_with="none")
async def dies(run: RunContext, input: dict[str, Json]) -> Json:
    """As a handler does that runs out of memory: no exception, no farewell."""
    _count(run)
    os._exit(77)


@kind("once", input_schema=ANYTHING, repeat=Repeat.NEVER)
async def once(run: RunContext, input: dict[str, Json]) -> Json:
    """One call; waits for ever `before` or `after` it where the input says so."""
    _count(run)
    if input.get("waits") == "before":
        await run.progress(0, 1, "before")
        await anyio.sleep_forever()
    text = (await run.call(_prompt(input))).text
    if input.get("waits") == "after":
        await run.progress(1, 1, "after")
        await anyio.sleep_forever()
    return {"text": text}


def _compute(seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


@kind("busy", input_schema=ANYTHING, repeat=Repeat.NEVER, works_with="none")
async def busy(run: RunContext, input: dict[str, Json]) -> Json:
    """Computes in the event loop, which no handler should."""
    seconds = input["seconds"]
    assert isinstance(seconds, int | float)
    await run.emit("begun")
    await run.store_checkpoint(0)
    _compute(seconds)
    return {"text": "begun"}
