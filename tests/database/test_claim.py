"""Claims: no job twice, only what this worker can run, best first, and never past the allowed attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import anyio
import pytest

from schema.database import Database
from schema.job_ids import JobId
from schema.runs import Ask, AttemptOutcome, NextReason, claim, put_back
from schema.waiting import expire_unstarted, promote_due
from tests.support.jobs import (
    KIND,
    a_tenant,
    check_log,
    claim_one,
    connected,
    job_row,
    lease_row,
    locked,
    opened,
    queued,
)

pytestmark = pytest.mark.anyio


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


async def _claim_ids(database: Database, limit: int = 100, providers: tuple[str, ...] = ()) -> list[UUID]:
    return [run.lease.job_id for run in (await claim(database, Ask("w", [KIND], providers, limit, 60))).runs]


async def test_ten_claimers_at_once_take_no_job_twice(database_url: str) -> None:
    """Invariant 2, with claims larger and smaller than what is left, until nothing is."""
    async with opened(database_url, 12) as database:
        tenant = await a_tenant(database)
        wanted = {await queued(database, tenant_id=tenant) for _ in range(60)}
        taken: list[UUID] = []

        async def claimer(limit: int) -> None:
            while got := await _claim_ids(database, limit):
                taken.extend(got)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(claimer, number + 1)
        assert len(taken) == len(set(taken)) == 60
        assert set(taken) == wanted
        for job_id in taken[::20]:
            await check_log(database, job_id)


async def test_a_claim_takes_no_more_than_it_was_asked_for(database: Database) -> None:
    tenant = await a_tenant(database)
    for _ in range(20):
        await queued(database, tenant_id=tenant)
    assert len(await _claim_ids(database, 7)) == 7
    assert await database.fetchval("SELECT count(*) FROM outlive.job_leases") == 7


async def test_a_claim_waits_for_no_locked_job(database: Database, database_url: str) -> None:
    held, free = await queued(database), await queued(database)
    async with locked(database_url, "SELECT 1 FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE", held):
        with anyio.fail_after(1):
            assert await _claim_ids(database) == [free]
    assert await _claim_ids(database) == [held]


async def test_a_claim_that_is_rolled_back_leaves_the_job_as_it_was(database: Database) -> None:
    """Lease, attempt and event are one commit."""
    job_id = await queued(database)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the transaction is one thing
        async with database.transaction() as connection:
            assert len((await claim(connection, Ask("w", [KIND], [], 1, 60))).runs) == 1
            raise ZeroDivisionError
    assert await lease_row(database, job_id) is None
    assert len(await check_log(database, job_id)) == 1
    assert (await job_row(database, job_id))["attempt"] == 0


async def test_only_registered_kinds_are_taken(database: Database) -> None:
    await queued(database, kind="other")
    job_id = await queued(database)
    assert await _claim_ids(database) == [job_id]


async def test_only_known_providers_are_taken(database: Database) -> None:
    await queued(database, provider="unknown")
    known, none = await queued(database, provider="known"), await queued(database)
    assert set(await _claim_ids(database, providers=("known", "other"))) == {known, none}


async def test_priority_then_age(database: Database) -> None:
    tenant = await a_tenant(database)
    places = {"low": (-5, 500.0), "old": (0, 400.0), "new": (0, 100.0), "high": (7, 50.0)}
    ids: dict[str, JobId] = {}
    for name, (priority, age_s) in places.items():
        ids[name] = await queued(database, tenant_id=tenant, priority=priority, run_at=_ago(age_s))
    in_order = [ids[name] for name in ("high", "old", "new", "low")]
    assert await _claim_ids(database, 2) == in_order[:2]
    assert await _claim_ids(database, 2) == in_order[2:]


async def test_a_job_whose_attempts_are_used_up_is_not_taken(database: Database) -> None:
    job_id = await queued(database, max_attempts=1)
    run = await claim_one(database)
    assert await put_back(database, run.lease, 2, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
    assert await _claim_ids(database) == []
    assert (await job_row(database, job_id))["status"] == "queued"


async def test_a_released_attempt_is_not_counted(database: Database) -> None:
    """Invariant 10: with one attempt allowed it may be handed back and taken again, under a new number."""
    await queued(database, max_attempts=1)
    for number in (1, 2, 3):
        run = await claim_one(database)
        assert (run.lease.attempt, run.attempts) == (number, 1)
        assert await put_back(
            database, run.lease, run.last_seq, NextReason.RELEASED, AttemptOutcome.RELEASED, counted=False
        )


async def test_a_scheduled_job_waits_for_its_time(database: Database) -> None:
    job_id = await queued(database, run_at=_ago(-3600))
    assert await promote_due(database, 10) == 0
    assert await _claim_ids(database) == []
    await database.execute("UPDATE outlive.ai_jobs SET run_at = now() WHERE id = $1", job_id)
    assert await promote_due(database, 10) == 1
    assert await _claim_ids(database) == [job_id]


async def test_two_promoters_at_once_promote_each_job_once(database: Database) -> None:
    tenant = await a_tenant(database)
    for _ in range(20):
        await queued(database, tenant_id=tenant, run_at=_ago(-3600))
    await database.execute("UPDATE outlive.ai_jobs SET run_at = now()")
    promoted: list[int] = []

    async def one() -> None:
        promoted.append(await promote_due(database, 15))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(one)
    assert sum(promoted) <= 20
    assert sum(promoted) + await promote_due(database, 100) == 20


async def test_too_late_to_start_is_the_end(database: Database) -> None:
    job_id = await queued(database, start_before=_ago(1))
    assert await _claim_ids(database) == []
    assert await expire_unstarted(database, 10) == {job_id: 2}
    row = await job_row(database, job_id)
    assert (row["status"], row["error_code"], row["error_class"]) == ("failed", "expired", "expired")
    await check_log(database, job_id)
    assert await expire_unstarted(database, 10) == {}


async def test_a_job_that_was_started_in_time_comes_back_after_it(database: Database) -> None:
    """`start_before` bounds the first start; a later attempt must neither expire nor wait for ever."""
    job_id = await queued(database, start_before=_ago(-3600))
    run = await claim_one(database)
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now() - interval '1 s' WHERE id = $1", job_id)
    assert await put_back(database, run.lease, 2, NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED)
    assert await expire_unstarted(database, 10) == {}
    assert await _claim_ids(database) == [job_id]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_role_s_own_isolation_does_not_break_claims(database_url: str, level: str) -> None:
    """Under repeatable read a claim that meets a job that was just taken fails with 40001."""
    async with connected(database_url) as admin:
        name = await admin.fetchval("SELECT current_database()")
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    async with opened(database_url, 12) as database:
        tenant = await a_tenant(database)
        for _ in range(30):
            await queued(database, tenant_id=tenant)
        taken: list[UUID] = []

        async def claimer() -> None:
            while got := await _claim_ids(database, 3):
                taken.extend(got)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(claimer)
        assert len(taken) == len(set(taken)) == 30
