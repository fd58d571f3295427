"""The scenarios `queue` and `queue-limit` of the bench."""

import io
import os
from collections.abc import Awaitable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeVar

from tests.bench.queues import drain, pickup, whole_path
from tests.bench.queues.contender import Contender
from tests.bench.queues.drain import drain_beside
from tests.bench.queues.outlive import TENANT, Outlive
from tests.bench.queues.pgqueuer import PgQueuer
from tests.bench.queues.pickup import pick_up
from tests.bench.queues.procrastinate import Procrastinate
from tests.bench.queues.server import ask, durable_server
from tests.bench.queues.whole_path import run_whole_path
from tests.support.postgres import Address

T = TypeVar("T")

# High enough to be held by nothing: what is measured is taking the permits and giving them back.
LIMITS = {"global": 1000, f"tenant:{TENANT}": 1000}


async def run_queue(folder: Path, repeats: int, jobs: int) -> None:
    """Outlive beside pgqueuer and procrastinate, on one server."""
    contenders: list[Contender] = [Outlive(), PgQueuer(), Procrastinate()]
    async with durable_server() as server:
        await _introduce(server, jobs)
        print(*await _quietly(drain_beside(server, contenders, repeats, jobs, folder)), sep="\n", flush=True)
        print(f"\n{pickup.HEAD}")
        for each in contenders:
            print(await _quietly(pick_up(server, each, folder)), flush=True)
        print(f"\n{whole_path.HEAD}")
        print(*await _quietly(run_whole_path(server, folder)), sep="\n", flush=True)


async def run_queue_limit(folder: Path, repeats: int, jobs: int) -> None:
    """The same no-op jobs with no limit, and under two that hold nobody up."""
    contenders: list[Contender] = [Outlive("no limit"), Outlive("global and tenant limit", LIMITS)]
    async with durable_server() as server:
        await _introduce(server, jobs)
        print(*await _quietly(drain_beside(server, contenders, repeats, jobs, folder)), sep="\n", flush=True)


async def _introduce(server: Address, jobs: int) -> None:
    """On a machine that others use too, only CPU and ratios within one run say something: so tell how busy it is."""
    version = await ask(server.url, "SHOW server_version")
    print(f"PostgreSQL {version}, {jobs} jobs a run, load average {os.getloadavg()[0]:.1f} before it\n\n{drain.HEAD}")


async def _quietly(work: Awaitable[T]) -> T:
    """Processes show their logs when they end, which a test wants and a table does not."""
    with redirect_stdout(io.StringIO()):
        return await work
