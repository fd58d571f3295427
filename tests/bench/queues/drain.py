"""How fast a queue empties: no-op jobs that were there before their one worker started, until the last has ended."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.queues.contender import Contender, is_empty
from tests.bench.queues.server import ask, cpu_seconds, fresh_database
from tests.bench.queues.starts import asked_for, read_starts
from tests.support.postgres import Address
from tests.support.waiting import until

# The slowest contender does some 200 jobs a second on a free machine.
DRAIN_WITHIN_S = 300


@dataclass(frozen=True, slots=True)
class Drained:
    """Jobs a second by the queue's own tables, and CPU in microseconds a job."""

    jobs_per_s: float
    worker_us: float
    postgres_us: float


async def drain(server: Address, contender: Contender, batch: int, jobs: int, folder: Path) -> Drained:
    """Fill a fresh database, start the worker, wait for the end of all."""
    starts = folder / "starts"
    starts.unlink(missing_ok=True)
    async with fresh_database(server) as url:
        await contender.install(url)
        async with contender.producer(url) as producer:
            await producer.fill(jobs)
        await ask(url, "ANALYZE")
        before = cpu_seconds(server)
        async with contender.worker(url, batch, asked_for(starts, jobs)) as worker:
            await worker.launch()
            await until(starts.exists, DRAIN_WITHIN_S, what=f"the last start at {contender.name}")
            await until(partial(is_empty, url, contender), DRAIN_WITHIN_S, what=f"the last end at {contender.name}")
            used = cpu_seconds(server) - before
        seconds = float(str(await ask(url, contender.span)))
    return Drained(jobs / seconds, read_starts(starts).cpu_s / jobs * 1e6, used / jobs * 1e6)


async def drain_beside(
    server: Address, contenders: Sequence[Contender], repeats: int, jobs: int, folder: Path
) -> Iterable[str]:
    """Lines of a table. The contenders take turns, so that all meet the same noise."""
    pairs = [(each, batch) for batch in (1, 10, 50) for each in contenders if batch in each.batches]
    found: dict[tuple[str, int], list[Drained]] = {(each.name, batch): [] for each, batch in pairs}
    for _ in range(repeats):
        for each, batch in pairs:
            found[each.name, batch].append(await drain(server, each, batch, jobs, folder))
    return [_row(name, batch, runs) for (name, batch), runs in found.items()]


def _row(name: str, batch: int, runs: Sequence[Drained]) -> str:
    middle = statistics.median(each.jobs_per_s for each in runs)
    every = ", ".join(f"{rate:,.0f}" for rate in sorted(each.jobs_per_s for each in runs))
    worker = statistics.median(each.worker_us for each in runs)
    postgres = statistics.median(each.postgres_us for each in runs)
    return f"| {name} | {batch} | {middle:,.0f} | {every} | {worker:,.0f} | {postgres:,.0f} |"


HEAD = (
    "| no-op jobs | at once | jobs/s, median | every run | worker's CPU us a job | PostgreSQL's CPU us a job |\n"
    "|---|---|---|---|---|---|"
)
