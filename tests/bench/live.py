"""Live streams: jobs that emit at a rate, one reader each, from the emitting handler to the reader's socket."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tests.bench.machine import Bench, start_bench
from tests.bench.readers import open_readers
from tests.bench.stamps import Arrivals, percentiles_ms
from tests.support.api import Job

# What a scenario may take beyond its own length, before what is missing counts as lost.
OVERTIME_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Live:
    """So many jobs at so many pieces a second each, for so long."""

    jobs: int
    rate: float
    seconds: float

    @property
    def pieces(self) -> int:
        """Of one job."""
        return int(self.rate * self.seconds)

    @property
    def query(self) -> str:
        """For the servers of naive.py."""
        return f"pieces={self.pieces}&gap_ms={1000 / self.rate}"

    def __str__(self) -> str:
        return f"{self.jobs} x {self.rate:g}/s"


async def run_live(folder: Path, scenario: Live) -> str:
    """Measure and return one line of a table."""
    async with start_bench(folder, concurrency=scenario.jobs + 10) as bench:
        return await _measure(bench, scenario)


async def _measure(bench: Bench, scenario: Live) -> str:
    jobs = []
    for first in range(0, scenario.jobs, 20):
        wanted = range(first, min(first + 20, scenario.jobs))
        jobs += await asyncio.gather(*(_create(bench, scenario) for _ in wanted))
    readers = await open_readers([bench.api.events_url(job) for job in jobs])
    await bench.worker.launch()
    before = bench.cpu_seconds()
    await asyncio.wait([reader.ended for reader, _ in readers], timeout=scenario.seconds + OVERTIME_SECONDS)
    after = bench.cpu_seconds()
    for reader, _ in readers:
        reader.close()
    await bench.worker.stop(within_s=30)
    arrivals = {UUID(job["job_id"]): got for job, (_, got) in zip(jobs, readers, strict=True)}
    used = {name: after[name] - before[name] for name in after}
    return row(str(scenario), scenario, list(arrivals.values()), used, _from_commit(bench.commits, arrivals))


async def _create(bench: Bench, scenario: Live) -> Job:
    return await bench.api.create("stamps", {"pieces": scenario.pieces, "gap_ms": 1000 / scenario.rate})


def _from_commit(path: Path, arrivals: dict[UUID, Arrivals]) -> list[int]:
    """Nanoseconds from each commit, as the worker saw it return, to the arrival of its last event."""
    committed = {}
    for line in path.read_text().splitlines():
        job, seq, at = line.split()
        committed[UUID(job), int(seq)] = int(at)
    return [
        arrived - committed[job_id, seq]
        for job_id, got in arrivals.items()
        for seq, arrived in got.events
        if (job_id, seq) in committed
    ]


def row(
    name: str, scenario: Live, arrivals: Sequence[Arrivals], cpu: dict[str, float], from_commit: Sequence[int]
) -> str:
    """One line: what came, how late, and the CPU of each part."""
    pieces = [(arrived - made) for got in arrivals for made, arrived in got.pieces]
    first = min((made for got in arrivals for made, _ in got.pieces), default=0)
    last = max((arrived for got in arrivals for _, arrived in got.pieces), default=0)
    rate = len(pieces) / ((last - first) / 1e9) if last > first else 0
    made, commit = percentiles_ms(pieces), percentiles_ms(from_commit)
    parts = " ".join(f"{part} {seconds / max(len(pieces), 1) * 1e6:.0f}" for part, seconds in cpu.items())
    return (
        f"| {name} | {len(pieces)} of {scenario.jobs * scenario.pieces} | {sum(got.gaps for got in arrivals)} "
        f"| {rate:,.0f} | {made['p50']:.1f} / {made['p99']:.1f} / {made['most']:.0f} "
        f"| {commit['p50']:.1f} / {commit['p99']:.1f} / {commit['most']:.0f} | {parts} |"
    )


HEAD = (
    "| streams | pieces | gaps | pieces/s | made to client, ms p50 / p99 / most "
    "| commit to client, ms p50 / p99 / most | CPU us a piece |\n|---|---|---|---|---|---|---|"
)
