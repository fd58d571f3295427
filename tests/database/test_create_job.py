"""Invariant 1: 202 means committed, and one idempotency key makes one job, whatever races."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import orjson
import pytest

from schema.creation import create_job
from schema.database import Database
from schema.errors import WriteRefused
from schema.job_ids import JobId
from schema.jobs import JobStatus, Reach, find_by_key, get_job, list_jobs
from tests.support.jobs import a_job, a_tenant, check_log, connected, job_row, locked, log_of, opened, queued

pytestmark = pytest.mark.anyio


async def test_fifty_identical_at_once_make_one_job(database_url: str) -> None:
    """Every loser finds the winner's job at once, committed."""
    async with opened(database_url, 20) as database:
        tenant = await a_tenant(database)
        won: list[JobId] = []
        seen: list[JobId] = []

        async def one() -> None:
            new = a_job(tenant, idempotency_key="same")
            if await create_job(database, new):
                won.append(new.id)
            use = await find_by_key(database, tenant, "", "same")
            assert use is not None
            seen.append(use.job_id)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(one)
        assert len(won) == 1
        assert seen == won * 50
        for table in ("ai_jobs", "job_contents", "job_events"):
            assert await database.fetchval(f"SELECT count(*) FROM outlive.{table}") == 1


async def test_a_second_one_waits_for_a_first_that_may_still_roll_back(database: Database, database_url: str) -> None:
    """The key is not taken before its job is committed: where that fails, the second one makes the job."""
    tenant = await a_tenant(database)
    second = a_job(tenant, idempotency_key="same")
    insert = """INSERT INTO outlive.ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, status, max_attempts,
        last_seq, run_at) VALUES (gen_random_uuid(), $1, 'same', $2, 'write', 'queued', 1, 1, now())"""
    made: list[bool] = []

    async def create() -> None:
        made.append(await create_job(database, second))

    async with anyio.create_task_group() as tasks, locked(database_url, insert, tenant, bytes(32)):
        tasks.start_soon(create)
        await anyio.wait_all_tasks_blocked()
        assert made == []
    assert made == [True]
    await check_log(database, second.id)


async def test_a_create_that_fails_leaves_nothing(database: Database) -> None:
    tenant = await a_tenant(database)
    with pytest.raises(WriteRefused):
        await create_job(database, a_job(tenant, idempotency_key="bad", input_json='"\\u12"'))
    assert await find_by_key(database, tenant, "", "bad") is None
    assert await create_job(database, a_job(tenant, idempotency_key="bad"))


async def test_what_create_said_another_connection_sees(database: Database, database_url: str) -> None:
    job_id = await queued(database)
    async with connected(database_url) as other:
        assert await other.fetchval("SELECT status::text FROM outlive.ai_jobs WHERE id = $1", job_id) == "queued"


async def test_keys_of_tenants_and_of_users_do_not_meet(database: Database) -> None:
    """Invariant 13."""
    one, two = await a_tenant(database), await a_tenant(database)
    for tenant, scope in ((one, ""), (two, ""), (one, "ann"), (one, "bob")):
        assert await create_job(database, a_job(tenant, idempotency_key="same", idempotency_scope=scope))
    assert not await create_job(database, a_job(one, idempotency_key="same", idempotency_scope="ann"))


async def test_nobody_reaches_past_his_reach(database: Database) -> None:
    """Invariant 13: another tenant's job, another user's, one that a token does not name: as if it were not there."""
    tenant, other = await a_tenant(database), await a_tenant(database)
    job_id = await queued(database, tenant_id=tenant, user_id="ann")
    for reach in (Reach(other), Reach(tenant, "bob"), Reach(tenant, "ann", frozenset())):
        assert await get_job(database, reach, job_id) is None
        assert await list_jobs(database, reach) == []
    for reach in (Reach(tenant), Reach(None), Reach(tenant, "ann"), Reach(tenant, "ann", frozenset({job_id}))):
        job = await get_job(database, reach, job_id)
        assert job is not None
        assert [each.id for each in await list_jobs(database, reach)] == [job_id]
    assert await list_jobs(database, Reach(tenant, "ann"), user_id="bob") == []


async def test_the_first_event_says_what_waits(database: Database) -> None:
    now, later = await queued(database), await queued(database, run_at=datetime.now(UTC) + timedelta(hours=1))
    assert [orjson.loads(event.data) for event in await log_of(database, now)] == [{"status": "queued"}]
    (event,) = await log_of(database, later)
    data = orjson.loads(event.data)
    assert (data["status"], data["reason"]) == (JobStatus.SCHEDULED, "run_at")
    assert datetime.fromisoformat(data["run_at"]) - (await job_row(database, later))["run_at"] < timedelta(seconds=1)


async def test_lists_go_on_exactly_where_they_stopped(database: Database) -> None:
    tenant = await a_tenant(database)
    made = [await queued(database, tenant_id=tenant) for _ in range(25)]
    seen: list[JobId] = []
    before = None
    while page := await list_jobs(database, Reach(tenant), before=before, limit=7):
        seen.extend(job.id for job in page)
        before = page[-1].id
    assert seen == sorted(made, reverse=True)
