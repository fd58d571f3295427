"""Recording a job, once for each idempotency key: the first time, or as another try of an ended one."""

from contextlib import suppress
from dataclasses import astuple, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Protocol
from uuid import UUID

from schema.database import Database
from schema.executor import Executor
from schema.job_ids import JobId
from schema.money import admit
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class JobMoney:
    """What a job may cost, in US dollars; None where there is no such bound or price.

    `max_cost_usd` stops it; `price_usd` is what its result costs whatever its calls did; `call_usd` is one call at
    worst; `reserved_usd` is set aside when it is created, 0 for a job that certainly costs nothing.
    """

    max_cost_usd: Decimal | None = None
    price_usd: Decimal | None = None
    call_usd: Decimal | None = None
    reserved_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is asked for; `input_json` and `metadata_json` are JSON texts without NUL or lone surrogates."""

    id: JobId
    tenant_id: UUID
    user_id: str | None
    idempotency_scope: str
    idempotency_key: str
    request_hash: bytes
    kind: str
    provider: str | None
    model: str | None
    priority: int
    max_attempts: int
    on_unknown: str
    run_at: datetime | None
    start_before: datetime | None
    traceparent: str | None
    input_json: str
    metadata_json: str
    money: JobMoney = field(default_factory=JobMoney)


@dataclass(frozen=True, slots=True)
class Retry:
    """A wish to try an ended job of a tenant again, under a key and an id of its own."""

    id: JobId
    retry_of: JobId
    tenant_id: UUID
    idempotency_scope: str
    idempotency_key: str
    request_hash: bytes
    traceparent: str | None


async def create_job(database: Database, new: NewJob) -> bool:
    """Record the job; False where its idempotency key is taken, and then nothing was written.

    When this returns True the job is committed: 202 means that. Raises QueueFull, QuotaExceeded, CostLimitRequired.
    """

    async def create(executor: Executor, *, admitted: bool) -> bool:
        row = await executor.fetchrow(
            statement("create_job"),
            *(new.id, new.tenant_id, new.user_id, new.idempotency_scope, new.idempotency_key, new.request_hash),
            *(new.kind, new.provider, new.model, new.priority, new.max_attempts, new.on_unknown, new.run_at),
            *(new.start_before, new.traceparent, new.input_json, new.metadata_json, *astuple(new.money), admitted),
        )
        return row is not None

    return await create(database, admitted=False) or await _admitted(
        database, new.tenant_id, new.money.reserved_usd, create
    )


async def retry_job(database: Database, retry: Retry) -> bool:
    """Record a new job with the input of a failed or cancelled one; when this returns True it is committed.

    False where the idempotency key is taken, the job did not end in one of the two ways, or its content is gone;
    nothing was written then. Raises QueueFull, QuotaExceeded, CostLimitRequired.
    """

    async def create(executor: Executor, *, admitted: bool) -> bool:
        row = await executor.fetchrow(
            statement("retry_job"),
            *(retry.id, retry.retry_of, retry.tenant_id, retry.idempotency_scope, retry.idempotency_key),
            *(retry.request_hash, retry.traceparent, admitted),
        )
        return row is not None

    if await create(database, admitted=False):
        return True
    amount_usd = await database.fetchval(statement("cost_of_retry"), retry.retry_of)
    return await _admitted(database, retry.tenant_id, amount_usd, create)


class _Create(Protocol):
    async def __call__(self, executor: Executor, *, admitted: bool) -> bool: ...


class _KeyTaken(Exception):
    """Takes back what was reserved for a job that is there already."""


async def _admitted(database: Database, tenant_id: UUID, amount_usd: Decimal | None, create: _Create) -> bool:
    """The way of a tenant with a quota or a bound of its queue, on which the others never wait for one another."""
    with suppress(_KeyTaken):
        async with database.transaction() as connection:
            await admit(connection, tenant_id, amount_usd)
            if not await create(connection, admitted=True):
                raise _KeyTaken
            return True
    return False
