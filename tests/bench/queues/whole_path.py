"""The whole path over HTTP: from before the POST of a no-op job to its terminal event on the stream."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil

from schema.database import Database, DatabaseSettings
from schema.tenants import add_key, find_tenant
from tests.bench.queues.caller import Caller, open_caller
from tests.bench.queues.contender import KIND
from tests.bench.queues.outlive import TENANT, Outlive
from tests.bench.queues.server import cpu_seconds, fresh_database
from tests.bench.queues.starts import asked_for
from tests.bench.stamps import percentiles_ms
from tests.support.postgres import Address
from tests.support.servers import start_gateway

CLIENTS = 32
CROWD_JOBS = 2000
RATE_HZ = 20.0
PACED_JOBS = 300
# Connections, plans and imports are warm after these, which do not count.
WARM_UP = 100


@dataclass(frozen=True, slots=True)
class House:
    """A gateway and a worker at work, and a caller's key."""

    server: Address
    gateway_url: str
    key: str
    processes: dict[str, psutil.Process]

    def cpu_seconds(self) -> dict[str, float]:
        """What each part has used so far, this process as `client`."""
        used = {name: sum(process.cpu_times()[:2]) for name, process in self.processes.items()}
        return used | {"postgres": cpu_seconds(self.server)}


async def run_whole_path(server: Address, folder: Path) -> list[str]:
    """Measure, and return the lines of a table."""
    async with _house(server, folder) as house, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(open_caller(house.gateway_url, house.key)) for _ in range(CLIENTS)]
        await _crowd(callers, WARM_UP)
        return [
            await _measured(house, f"{CLIENTS} clients, each again and again", _crowd(callers, CROWD_JOBS)),
            await _measured(house, f"{RATE_HZ:g} jobs/s", _paced(callers, PACED_JOBS)),
        ]


async def _measured(house: House, name: str, work: Awaitable[list[int]]) -> str:
    before, began = house.cpu_seconds(), time.monotonic()
    took_ns = await work
    seconds, after = time.monotonic() - began, house.cpu_seconds()
    jobs, cuts = len(took_ns), percentiles_ms(took_ns)
    cpu = ", ".join(f"{part} {(after[part] - before[part]) / jobs * 1e6:,.0f}" for part in after)
    return f"| {name} | {jobs} | {jobs / seconds:,.0f} | {cuts['p50']:.1f} / {cuts['p99']:.1f} | {cpu} |"


async def _crowd(callers: list[Caller], jobs: int) -> list[int]:
    """Each job's time in nanoseconds; every caller begins its next when its last has ended."""
    took_ns: list[int] = []
    numbers = iter(range(jobs))
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(_run_each, caller, numbers, took_ns)
    return took_ns


async def _run_each(caller: Caller, numbers: Iterator[int], took_ns: list[int]) -> None:
    for number in numbers:
        await _run(caller, number, took_ns)


async def _run(caller: Caller, number: int, took_ns: list[int]) -> None:
    began = time.monotonic_ns()
    await caller.run(KIND, {"number": number})
    took_ns.append(time.monotonic_ns() - began)


async def _paced(callers: list[Caller], jobs: int) -> list[int]:
    """The same at a steady rate, whatever the last one does; the callers take turns."""
    took_ns: list[int] = []
    begins_at = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(jobs):
            await anyio.sleep(max(0.0, begins_at + number / RATE_HZ - anyio.current_time()))
            tasks.start_soon(_run, callers[number % len(callers)], number, took_ns)
    return took_ns


@asynccontextmanager
async def _house(server: Address, folder: Path) -> AsyncIterator[House]:
    async with fresh_database(server) as url:
        outlive = Outlive()
        await outlive.install(url)
        async with Database.open(DatabaseSettings(url, url, 1)) as database:
            key = await add_key(database, await find_tenant(database, TENANT))
        starts = asked_for(folder / "starts", WARM_UP + CROWD_JOBS + PACED_JOBS)
        async with outlive.worker(url, CLIENTS, starts) as worker, start_gateway(url) as gateway:
            await worker.launch()
            await worker.logs("worker ready")
            pids = {"gateway": gateway.pid, "worker": worker.pid, "client": os.getpid()}
            yield House(server, gateway.url, key, {name: psutil.Process(pid) for name, pid in pids.items()})


HEAD = (
    "| POST to terminal event, over HTTP and SSE | jobs | jobs/s | ms p50 / p99 | CPU us a job |\n"
    "|---|---|---|---|---|"
)
