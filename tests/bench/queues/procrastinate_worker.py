"""`python -m tests.bench.queues.procrastinate_worker URL CONCURRENCY`: a worker of procrastinate."""

import os
import sys

import uvloop
from procrastinate import App, PsycopgConnector

from tests.bench.queues.contender import KIND
from tests.bench.queues.starts import FILE, Starts


def make_app(url: str) -> App:
    """With the no-op task; its starts are noted where a file for them is named."""
    app = App(connector=PsycopgConnector(conninfo=url))
    starts = Starts() if FILE in os.environ else None

    @app.task(name=KIND)
    async def noop(number: int) -> None:
        if starts is not None:
            starts.note(number)

    return app


async def main(url: str, concurrency: int) -> None:
    """Work until told to stop."""
    async with make_app(url).open_async() as app:
        await app.run_worker_async(concurrency=concurrency)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
