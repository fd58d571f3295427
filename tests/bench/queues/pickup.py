"""How soon a job starts on an idle system: one at a time, from before it is enqueued to its handler's first line."""

import time
from functools import partial
from pathlib import Path

import anyio

from tests.bench.queues.contender import Contender, Producer, is_empty
from tests.bench.queues.server import fresh_database
from tests.bench.queues.starts import asked_for, read_starts
from tests.bench.stamps import percentiles_ms
from tests.support.postgres import Address
from tests.support.waiting import until

RATE_HZ = 50.0
MEASURED_SECONDS = 10
# Connections, plans and imports are warm after these, which do not count.
WARM_UP = 50
BATCH = 10
WITHIN_S = 60


async def pick_up(server: Address, contender: Contender, folder: Path) -> str:
    """Measure, and return one line of a table."""
    counted = range(WARM_UP, WARM_UP + int(RATE_HZ * MEASURED_SECONDS))
    starts = folder / "starts"
    starts.unlink(missing_ok=True)
    async with fresh_database(server) as url:
        await contender.install(url)
        async with contender.worker(url, BATCH, asked_for(starts, counted.stop)) as worker:
            await worker.launch()
            async with contender.producer(url) as producer:
                await _enqueue(producer, range(WARM_UP))
                await until(partial(is_empty, url, contender), WITHIN_S, what=f"warm jobs at {contender.name}")
                asked, done = await _enqueue(producer, counted)
            await until(starts.exists, WITHIN_S, what=f"the last start at {contender.name}")
    began = read_starts(starts).at_ns
    whole = percentiles_ms([began[number] - asked[number] for number in counted])
    enqueued = percentiles_ms([done[number] - asked[number] for number in counted])
    after = percentiles_ms([began[number] - done[number] for number in counted])
    parts = " | ".join(f"{each['p50']:.1f} / {each['p99']:.1f}" for each in (whole, enqueued, after))
    return f"| {contender.name} | {len(counted)} | {parts} |"


async def _enqueue(producer: Producer, numbers: range) -> tuple[dict[int, int], dict[int, int]]:
    """Job number -> when it was asked for, and when it was committed, in nanoseconds."""
    asked, done = {}, {}
    begins_at = anyio.current_time()
    for late, number in enumerate(numbers):
        # On a schedule of its own: a slow enqueue does not thin out what comes after it.
        await anyio.sleep(max(0.0, begins_at + late / RATE_HZ - anyio.current_time()))
        asked[number] = time.monotonic_ns()
        await producer.enqueue(number)
        done[number] = time.monotonic_ns()
    return asked, done


HEAD = (
    "| idle, 50 jobs/s one at a time | jobs | enqueue to start, ms p50 / p99 | of that the enqueue, ms p50 / p99 "
    "| committed to start, ms p50 / p99 |\n|---|---|---|---|---|"
)
