"""Jobs as tests of the core need them: made, claimed, written to, looked at as rows, locked by somebody else."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from schema.creation import NewJob, create_job
from schema.database import Database, DatabaseSettings
from schema.events import Append, Draft, Event, EventKind, append, read_after
from schema.job_ids import JobId, new_job_id
from schema.kinds import JobKind, register_kind
from schema.runs import Ask, ClaimedRun, claim
from schema.tenants import add_tenant

KIND = "write"
LEASE_S = 60.0
ENDS = {"succeeded", "failed", "cancelled"}


@asynccontextmanager
async def opened(url: str, pool_size: int = 10) -> AsyncIterator[Database]:
    async with Database.open(DatabaseSettings(url, url, pool_size)) as database:
        yield database


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of somebody else, with none of our session settings."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def locked(url: str, sql: str, *values: object) -> AsyncIterator[None]:
    """Somebody else's open transaction, which holds what `sql` locks until the block ends."""
    async with connected(url) as other:
        await other.execute("BEGIN")
        await other.execute(sql, *values)
        try:
            yield
        finally:
            await other.execute("ROLLBACK")


async def a_tenant(database: Database) -> UUID:
    return (await add_tenant(database, f"t{uuid.uuid4().hex}")).id


def a_job(tenant_id: UUID, **changes: Any) -> NewJob:
    job = NewJob(
        id=new_job_id(),
        tenant_id=tenant_id,
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
        input_json="{}",
        metadata_json="{}",
    )
    return replace(job, **changes)


async def queued(database: Database, **changes: Any) -> JobId:
    """A job that waits, of a new tenant unless one is named."""
    tenant_id = changes.pop("tenant_id", None) or await a_tenant(database)
    new = a_job(tenant_id, **changes)
    assert await create_job(database, new)
    return new.id


async def claim_one(database: Database, kind: str = KIND, lease_s: float = LEASE_S) -> ClaimedRun:
    (run,) = (await claim(database, Ask("tester", [kind], [], 1, lease_s))).runs
    return run


async def running(database: Database, **changes: Any) -> ClaimedRun:
    """A job that runs; its log is at 2. It has a kind of its own, so that nothing else can be claimed instead."""
    kind = f"k{uuid.uuid4().hex}"
    await queued(database, kind=kind, **changes)
    return await claim_one(database, kind)


async def register(database: Database, kind: str, repeat: str) -> None:
    await register_kind(database, JobKind(kind, 1, {}, repeat, 600, False, None, None, {}))


def says(run: ClaimedRun, base_seq: int, *texts: str) -> Append:
    """Chunks after `base_seq`, by the token of `run`."""
    drafts = [Draft(EventKind.CHUNK, text) for text in texts]
    return Append(run.lease.job_id, run.lease.run_token, base_seq, drafts)


async def grow(database: Database, run: ClaimedRun, base_seq: int, count: int) -> int:
    """`count` chunks after `base_seq`; returns the last seq."""
    one = says(run, base_seq, *(f"<{base_seq + n}>" for n in range(1, count + 1)))
    assert await append(database, [one]) == {run.lease.job_id}
    return one.last_seq


async def log_of(database: Database, job_id: UUID) -> list[Event]:
    return await read_after(database, job_id, 0, 100_000, 1 << 30)


async def job_row(database: Database, job_id: UUID) -> asyncpg.Record:
    row = await database.fetchrow("SELECT * FROM outlive.ai_jobs WHERE id = $1", job_id)
    assert row is not None
    return row


async def lease_row(database: Database, job_id: UUID) -> asyncpg.Record | None:
    return await database.fetchrow("SELECT * FROM outlive.job_leases WHERE job_id = $1", job_id)


async def attempt_rows(database: Database, job_id: UUID) -> list[asyncpg.Record]:
    sql = "SELECT * FROM outlive.job_attempts WHERE job_id = $1 ORDER BY attempt"
    return list(await database.fetch(sql, job_id))


async def call_rows(database: Database, job_id: UUID) -> list[asyncpg.Record]:
    sql = "SELECT * FROM outlive.provider_calls WHERE job_id = $1 ORDER BY attempt, call"
    return list(await database.fetch(sql, job_id))


async def expire(database: Database, job_id: UUID) -> None:
    """The lease ran out a second ago."""
    sql = "UPDATE outlive.job_leases SET lease_until = clock_timestamp() - $2::interval WHERE job_id = $1"
    await database.execute(sql, job_id, timedelta(seconds=1))


async def waits_for_a_lock(database: Database, part: str) -> bool:
    """Whether a statement that contains `part` waits for somebody else's lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 IN query) > 0"
    return bool(await database.fetchval(sql, part))


async def check_log(database: Database, job_id: UUID) -> list[Event]:
    """seq is 1..n without a gap; a terminal event is one, the last, and agrees with the row. Returns the log."""
    events, row, lease = (
        await log_of(database, job_id),
        await job_row(database, job_id),
        await lease_row(database, job_id),
    )
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(events) == (row["last_seq"] if lease is None else lease["last_seq"])
    ends = [event for event in events if event.kind.value in ENDS]
    if row["status"] in ENDS:
        assert ends == events[-1:]
        assert events[-1].kind.value == row["status"]
    else:
        assert ends == []
    assert (row["status"] == "running") == (lease is not None)
    return events
