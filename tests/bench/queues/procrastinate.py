"""procrastinate as a contender; it fetches one job at a time, so what it has instead of batches is jobs at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from procrastinate import App
from procrastinate.types import JSONDict

from tests.bench.queues.procrastinate_worker import make_app
from tests.support.processes import ServerProcess

# What it inserts in one statement when it is filled.
CHUNK = 500


class Procrastinate:
    """Keeps ended jobs, and each change of a job in a table of events."""

    name = "procrastinate"
    batches = (1, 10)
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    span = """SELECT extract(epoch FROM max(at) FILTER (WHERE type = 'succeeded')
        - min(at) FILTER (WHERE type = 'started')) FROM procrastinate_events"""

    async def install(self, url: str) -> None:
        """The tables."""
        async with make_app(url).open_async() as app:
            await app.schema_manager.apply_schema_async()

    def worker(self, url: str, batch: int, environment: dict[str, str]) -> ServerProcess:
        """So many jobs at once."""
        return ServerProcess("tests.bench.queues.procrastinate_worker", environment, (url, str(batch)))

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncIterator["ProcrastinateProducer"]:
        """With its own pool."""
        async with make_app(url).open_async() as app:
            yield ProcrastinateProducer(app)


class ProcrastinateProducer:
    """The one argument of a job is its number."""

    def __init__(self, app: App) -> None:
        self._noop = app.tasks["noop"]

    async def fill(self, count: int) -> None:
        """Many a statement."""
        for first in range(0, count, CHUNK):
            arguments: list[JSONDict] = [{"number": number} for number in range(first, min(first + CHUNK, count))]
            await self._noop.batch_defer_async(*arguments)

    async def enqueue(self, number: int) -> None:
        """One; a trigger notifies."""
        await self._noop.defer_async(number=number)
