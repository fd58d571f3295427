"""A queue that is measured: its tables, its worker process, and somebody who enqueues."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tests.bench.queues.server import ask
from tests.support.processes import ServerProcess

KIND = "noop"


class Producer(Protocol):
    """A caller of the queue, in the process of the bench."""

    async def fill(self, count: int) -> None:
        """Enqueue jobs 0 to `count` - 1, as many at once as the queue's own interface takes."""
        ...

    async def enqueue(self, number: int) -> None:
        """Enqueue one job; it is committed when this returns."""
        ...


class Contender(Protocol):
    """`batches` are what its worker is measured with: jobs a fetch for a queue that fetches many, else jobs at once.

    `left` counts the jobs that have not ended. `span` gives the seconds from the first start to the last end, as the
    queue's own tables have them.
    """

    @property
    def name(self) -> str: ...

    @property
    def batches(self) -> tuple[int, ...]: ...

    @property
    def left(self) -> str: ...

    @property
    def span(self) -> str: ...

    async def install(self, url: str) -> None:
        """Make its tables in an empty database."""
        ...

    def worker(self, url: str, batch: int, environment: dict[str, str]) -> ServerProcess:
        """Its worker, to be launched; it notes each start as starts.py says."""
        ...

    def producer(self, url: str) -> AbstractAsyncContextManager[Producer]:
        """Open for the block."""
        ...


async def is_empty(url: str, contender: Contender) -> bool:
    """Whether all jobs have ended."""
    return await ask(url, contender.left) == 0
