"""`python -m tests.bench.queues.pgqueuer_worker URL BATCH`: a worker of pgqueuer, without its scheduler."""

import sys

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager

from tests.bench.queues.contender import KIND
from tests.bench.queues.starts import Starts


async def main(url: str, batch: int) -> None:
    """Work until killed."""
    starts = Starts()
    manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(url))))

    @manager.entrypoint(KIND)
    async def noop(job: Job) -> None:
        starts.note(int(job.payload or b""))

    await manager.run(batch_size=batch)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
