"""A kind of a team's own: `python -m worker --handlers docs/examples/word_count.py`; docs/handlers.md explains it.

It counts the words of a text, paragraph by paragraph, and books each count in a table outside of Outlive: SQLite
here, any system that can tell a repetition by its key in earnest.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import anyio
from anyio.to_thread import run_sync

from worker.handlers.kind import Json, Repeat, RunContext, kind

TALLY = Path(os.environ.get("WORD_COUNT_DB", ".outlive/word_count.db"))

INPUT: dict[str, Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
        # Time to watch, to cancel, or to kill the worker, as a slow step of real work would give.
        "pause_seconds": {"type": "number", "minimum": 0, "maximum": 10, "default": 0},
    },
    "required": ["text"],
    "additionalProperties": False,
}


@kind("word_count", version=1, input_schema=INPUT, repeat=Repeat.CHECKPOINT, works_with="none", time_limit_s=600)
async def word_count(run: RunContext, input: dict[str, Json]) -> Json:
    """`{"text", "words"}`; the text is exactly what was emitted, over all attempts."""
    paragraphs = [part for part in str(input["text"]).split("\n\n") if part.strip()]
    counts = cast("list[int]", run.checkpoint or [])
    for number in range(len(counts) + 1, len(paragraphs) + 1):
        await run.progress(number - 1, len(paragraphs), f"Paragraph {number}")
        words = len(paragraphs[number - 1].split())
        await run_sync(book, run.step_key(f"paragraph-{number}"), words)
        await run.emit(line(number, words))
        counts = [*counts, words]
        await run.store_checkpoint(cast("Json", counts))
        await anyio.sleep(cast("float", input.get("pause_seconds", 0)))
    await run.progress(len(paragraphs), len(paragraphs))
    await run.emit_data("total", {"paragraphs": len(counts), "words": sum(counts)})
    return {"text": "".join(line(number, words) for number, words in enumerate(counts, 1)), "words": sum(counts)}


def line(number: int, words: int) -> str:
    return f"Paragraph {number}: {words} {'word' if words == 1 else 'words'}\n"


def book(key: str, words: int) -> None:
    """Once for each key: an attempt that repeats a step finds its row and changes nothing."""
    TALLY.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(TALLY)) as tally, tally:
        tally.execute("CREATE TABLE IF NOT EXISTS counts (step_key TEXT PRIMARY KEY, words INTEGER NOT NULL)")
        tally.execute("INSERT INTO counts VALUES (?, ?) ON CONFLICT DO NOTHING", (key, words))
