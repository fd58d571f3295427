"""pgqueuer as a contender, installed as it comes: all its tables logged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Queries

from tests.bench.queues.contender import KIND
from tests.support.processes import ServerProcess

# What it inserts in one statement when it is filled.
CHUNK = 500


class PgQueuer:
    """Keeps no ended jobs; its log has a row for each pick and each end."""

    name = "pgqueuer"
    batches = (1, 10, 50)
    left = "SELECT count(*) FROM pgqueuer"
    span = """SELECT extract(epoch FROM max(created) FILTER (WHERE status = 'successful')
        - min(created) FILTER (WHERE status = 'picked')) FROM pgqueuer_log"""

    async def install(self, url: str) -> None:
        """The tables."""
        async with self.producer(url) as producer:
            await producer.queries.install()

    def worker(self, url: str, batch: int, environment: dict[str, str]) -> ServerProcess:
        """So many jobs a fetch; how many run at once it does not bound by default."""
        return ServerProcess("tests.bench.queues.pgqueuer_worker", environment, (url, str(batch)))

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncIterator["PgQueuerProducer"]:
        """One connection, as its documents have it."""
        connection = await asyncpg.connect(url)
        try:
            yield PgQueuerProducer(Queries(AsyncpgDriver(connection)))
        finally:
            await connection.close()


class PgQueuerProducer:
    """The payload of a job is its number."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries

    async def fill(self, count: int) -> None:
        """Many a statement."""
        for first in range(0, count, CHUNK):
            payloads: list[bytes | None] = [b"%d" % number for number in range(first, min(first + CHUNK, count))]
            await self.queries.enqueue([KIND] * len(payloads), payloads, [0] * len(payloads))

    async def enqueue(self, number: int) -> None:
        """One; a trigger notifies."""
        await self.queries.enqueue(KIND, b"%d" % number)
