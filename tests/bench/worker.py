"""For `python -m worker --handlers`: `stamps` emits stamped pieces at a rate, and each commit's moment is kept."""

import atexit
import os
import time
from pathlib import Path
from uuid import UUID

import anyio

from scripted_provider.script import stamp
from tests.bench.machine import COMMITS
from worker.handlers.kind import Json, Kind, Repeat, RunContext
from worker.log_writer import LogWriter


async def stamps(run: RunContext, input: dict[str, Json]) -> Json:
    """`pieces` pieces, one every `gap_ms`, on a schedule of its own that a late piece does not shift."""
    pieces, gap_ms = int(str(input["pieces"])), float(str(input["gap_ms"]))
    starts_at = anyio.current_time()
    for number in range(pieces):
        await anyio.sleep(max(0.0, starts_at + number * gap_ms / 1000 - anyio.current_time()))
        await run.emit(stamp())
    return {"pieces": pieces}


STAMPS = Kind("stamps", 1, {"type": "object"}, Repeat.SAFE, stamps, works_with="none")


def keep_commits(path: Path) -> None:
    """Write (job, last seq, nanoseconds) of every commit to a file at the end."""
    commits: list[tuple[UUID, int, int]] = []
    committed = LogWriter.committed

    def noting(writer: LogWriter, last_seq: int) -> None:
        commits.append((writer.job_id, last_seq, time.monotonic_ns()))
        committed(writer, last_seq)

    LogWriter.committed = noting  # type: ignore[method-assign,assignment]
    atexit.register(lambda: path.write_text("\n".join(f"{job} {seq} {at}" for job, seq, at in commits)))


if path := os.environ.get(COMMITS):
    keep_commits(Path(path))
