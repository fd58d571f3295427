"""Outlive as a contender: the worker as it is started in production, jobs created as the gateway creates them."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from uuid import UUID

import anyio

from schema.creation import JobMoney, NewJob, create_job
from schema.database import Database, DatabaseSettings
from schema.hints import HintSender
from schema.job_ids import new_job_id
from schema.limits import set_limit
from schema.migrate import migrate
from schema.tenants import add_tenant, find_tenant
from tests.bench.queues.contender import KIND
from tests.support.processes import ServerProcess
from tests.support.servers import environment_for

TENANT = "acme"
# There is no interface for many jobs at once; a gateway under load has about so many requests at PostgreSQL.
FILLERS = 8


class Outlive:
    """`limits` are set before it is filled, scope -> most."""

    batches = (1, 10, 50)
    left = "SELECT count(*) FROM outlive.ai_jobs WHERE finished_at IS NULL"
    span = "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM outlive.ai_jobs"

    def __init__(self, name: str = "outlive", limits: dict[str, int] | None = None) -> None:
        self.name = name
        self._limits = limits or {}

    async def install(self, url: str) -> None:
        """The tables, and one tenant."""
        await migrate(url)
        async with Database.open(DatabaseSettings(url, url, 1)) as database:
            await add_tenant(database, TENANT)
            for scope, most in self._limits.items():
                await set_limit(database, scope, most)

    def worker(self, url: str, batch: int, environment: dict[str, str]) -> ServerProcess:
        """So many jobs at once, and so at most as many a claim."""
        settings = environment_for(url, {"OUTLIVE_CONCURRENCY": str(batch), **environment})
        return ServerProcess("worker", settings, ("--handlers", "tests.bench.queues.outlive_kind"))

    @asynccontextmanager
    async def producer(self, url: str) -> AsyncIterator["Creator"]:
        """With the pool and the hints of a gateway."""
        async with Database.open(DatabaseSettings(url, url, FILLERS)) as database:
            hints = HintSender(database)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hints.run)
                yield Creator(database, hints, (await find_tenant(database, TENANT)).id)
                tasks.cancel_scope.cancel()


class Creator:
    """Creates jobs of one tenant."""

    def __init__(self, database: Database, hints: HintSender, tenant_id: UUID) -> None:
        self._database = database
        self._hints = hints
        self._tenant_id = tenant_id

    async def fill(self, count: int) -> None:
        """Job by job, on a few connections."""
        numbers = iter(range(count))
        async with anyio.create_task_group() as tasks:
            for _ in range(FILLERS):
                tasks.start_soon(self._create_each, numbers)

    async def _create_each(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await create_job(self._database, self._job(number))

    async def enqueue(self, number: int) -> None:
        """One job and its hint."""
        await create_job(self._database, self._job(number))
        self._hints.work()

    def _job(self, number: int) -> NewJob:
        return NewJob(
            id=new_job_id(),
            tenant_id=self._tenant_id,
            user_id=None,
            idempotency_scope="",
            idempotency_key=uuid.uuid4().hex,
            request_hash=bytes(32),
            kind=KIND,
            provider=None,
            model=None,
            priority=0,
            max_attempts=3,
            on_unknown="auto",
            run_at=None,
            start_before=None,
            traceparent=None,
            input_json=f'{{"number":{number}}}',
            metadata_json="{}",
            money=JobMoney(reserved_usd=Decimal(0)),
        )
