"""Everything that one measurement needs, started and stopped: PostgreSQL, a gateway, a worker, and their CPU."""

import io
import os
import platform
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import psutil

from schema.database import Database, DatabaseSettings
from tests.support.api import Api, call_api, make_key
from tests.support.databases import make_migrated
from tests.support.postgres import DurablePostgres
from tests.support.processes import ServerProcess
from tests.support.servers import Environment, Gateway, environment_for, start_gateway

# Where tests/bench/worker.py keeps the moment of each commit.
COMMITS = "OUTLIVE_BENCH_COMMITS"


@dataclass(slots=True)
class Bench:
    """A durable PostgreSQL (fsync and synchronous_commit on), one gateway, one worker, one caller."""

    postgres: DurablePostgres
    database_url: str
    gateway: Gateway
    worker: ServerProcess
    api: Api
    commits: Path

    def cpu_seconds(self) -> dict[str, float]:
        """What each part has used so far, this process as `client`."""
        used = {"gateway": self.gateway.pid, "worker": self.worker.pid, "client": os.getpid()}
        servers = [p.pid for p in psutil.process_iter(["name"]) if p.info["name"] == "postgres"]
        return {name: _cpu(pid) for name, pid in used.items()} | {"postgres": sum(map(_cpu, servers))}

    def gateway_bytes(self) -> int:
        """Resident memory of the gateway."""
        return int(psutil.Process(self.gateway.pid).memory_info().rss)


def _cpu(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def facts() -> str:
    """The machine in one line."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?: ?")
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {cpu.partition(': ')[2]}, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


@asynccontextmanager
async def _quiet(stack: AsyncExitStack) -> AsyncIterator[AsyncExitStack]:
    """Processes show their logs when they end, which a test wants and a table does not."""
    try:
        yield stack
    finally:
        with redirect_stdout(io.StringIO()):
            await stack.aclose()


@asynccontextmanager
async def start_bench(
    folder: Path, *, concurrency: int, environment: Environment | None = None
) -> AsyncIterator[Bench]:
    """Start it all, but for the worker, which has registered its kinds and is launched when the readers are there."""
    commits = folder / "commits"
    commits.unlink(missing_ok=True)
    async with _quiet(AsyncExitStack()) as stack:
        postgres = DurablePostgres()
        await postgres.start()
        stack.push_async_callback(postgres.close)
        url = await make_migrated(postgres.url)
        key = await make_key(url)
        more = {COMMITS: str(commits), "OUTLIVE_CONCURRENCY": str(concurrency), **(environment or {})}
        worker = await stack.enter_async_context(
            ServerProcess("worker", environment_for(url, more), ("--handlers", "tests.bench.worker"))
        )
        await worker.launch()
        await worker.logs("worker ready")
        await worker.stop()
        gateway = await stack.enter_async_context(start_gateway(url, {"OUTLIVE_MAX_STREAMS": "20000"}))
        api = await stack.enter_async_context(call_api(gateway.url, key))
        yield Bench(postgres, url, gateway, worker, api, commits)


async def postgres_version(url: str) -> str:
    """As the server says it."""
    async with Database.open(DatabaseSettings(url, url, 1)) as database:
        return str(await database.fetchval("SHOW server_version"))
