"""Outcomes come once each, in an order that no late commit falls behind."""

from __future__ import annotations

import random
from uuid import UUID

import anyio
import pytest

from schema.database import Database
from schema.endings import Ending, end_run
from schema.job_ids import JobId
from schema.jobs import JobStatus, Reach, cancel_job
from schema.outcomes import FIRST, Outcome, OutcomeCursor, outcomes_after
from schema.runs import AttemptOutcome, Failure
from schema.statements import statement
from schema.waiting import expire_unstarted
from tests.support.jobs import a_tenant, connected, queued, running
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

_CANCEL = """
    UPDATE outlive.ai_jobs SET status = 'cancelled', finished_at = now(), ended_xid = pg_current_xact_id()
    WHERE id = $1
"""


async def seen(database: Database, tenant_id: UUID | None, count: int, after: OutcomeCursor = FIRST) -> list[Outcome]:
    """So many outcomes: an open transaction of whoever else is on the server holds them up, never away."""

    async def enough() -> list[Outcome] | None:
        found = await outcomes_after(database, tenant_id, after, 1000)
        return found if len(found) >= count else None

    found = await until(enough, 30, what=f"{count} outcomes")
    assert found is not None
    assert len(found) == count
    return found


async def cancelled(database: Database, tenant_id: UUID) -> JobId:
    job_id = await queued(database, tenant_id=tenant_id)
    await cancel_job(database, Reach(tenant_id), job_id)
    return job_id


async def test_every_way_to_end_is_an_outcome(database: Database) -> None:
    tenant_id = await a_tenant(database)
    one, two, three = [(await running(database, tenant_id=tenant_id)).lease for _ in range(3)]
    assert await end_run(database, Ending.succeeded(one, 2, {"a": 1}))
    assert await end_run(
        database, Ending.failed(two, 2, Failure("bad", "permanent", "It is."), AttemptOutcome.FAILED)
    )
    assert await end_run(database, Ending.cancelled(three, 2, AttemptOutcome.CANCELLED))
    four = await cancelled(database, tenant_id)
    five = await queued(database, tenant_id=tenant_id, user_id="ann", metadata_json='{"order": 7}')
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now() WHERE id = $1", five)
    assert five in await expire_unstarted(database, 10)
    await queued(database, tenant_id=tenant_id)

    found = await seen(database, tenant_id, 5)
    assert [(outcome.job_id, outcome.status) for outcome in found] == [
        (one.job_id, JobStatus.SUCCEEDED),
        (two.job_id, JobStatus.FAILED),
        (three.job_id, JobStatus.CANCELLED),
        (four, JobStatus.CANCELLED),
        (five, JobStatus.FAILED),
    ]
    assert [outcome.error.code if outcome.error else None for outcome in found] == [
        None,
        "bad",
        None,
        None,
        "expired",
    ]
    assert (found[4].user_id, found[4].metadata) == ("ann", {"order": 7})


async def test_one_that_is_still_committing_is_not_skipped(database: Database, database_url: str) -> None:
    """Its transaction began first and commits last: what ended meanwhile waits behind it."""
    tenant_id = await a_tenant(database)
    slow = await queued(database, tenant_id=tenant_id)
    async with connected(database_url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(_CANCEL, slow)
        fast = await cancelled(database, tenant_id)
        assert await outcomes_after(database, tenant_id, FIRST, 10) == []
        assert await outcomes_after(database, None, FIRST, 10) == []
        await transaction.commit()
    found = await seen(database, tenant_id, 2)
    assert [outcome.job_id for outcome in found] == [slow, fast]


async def test_one_that_is_rolled_back_holds_up_the_others_only_so_long(
    database: Database, database_url: str
) -> None:
    tenant_id = await a_tenant(database)
    never = await queued(database, tenant_id=tenant_id)
    async with connected(database_url) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(_CANCEL, never)
        fast = await cancelled(database, tenant_id)
        await transaction.rollback()
    assert [outcome.job_id for outcome in await seen(database, tenant_id, 1)] == [fast]


async def test_a_reader_that_goes_on_from_its_cursor_gets_each_of_many_once(database: Database) -> None:
    """Ends race each other in transactions of different length, while somebody reads all the time."""
    tenant_id = await a_tenant(database)
    jobs = [await queued(database, tenant_id=tenant_id) for _ in range(40)]
    read: list[JobId] = []
    order = random.Random(5)

    async def end(job_ids: list[JobId]) -> None:
        for job_id in job_ids:
            async with database.transaction() as connection:
                await connection.execute(_CANCEL, job_id)
                await connection.execute("SELECT pg_sleep($1)", order.random() / 50)

    async def read_all() -> None:
        cursor = FIRST
        while len(read) < len(jobs):
            page = await outcomes_after(database, tenant_id, cursor, order.randint(1, 5))
            read.extend(outcome.job_id for outcome in page)
            cursor = page[-1].cursor if page else cursor

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_all)
            for first in range(4):
                tasks.start_soon(end, jobs[first::4])
    assert sorted(read) == sorted(jobs)


async def test_tenants_have_their_own_and_nobody_else_s(database: Database) -> None:
    one, other = await a_tenant(database), await a_tenant(database)
    mine, foreign = await cancelled(database, one), await cancelled(database, other)
    assert [outcome.job_id for outcome in await seen(database, one, 1)] == [mine]
    assert [outcome.job_id for outcome in await seen(database, None, 2)] == [mine, foreign]


async def test_a_whole_transaction_of_ends_is_paged_through(database: Database) -> None:
    """They share one transaction id; the job's own tells them apart."""
    tenant_id = await a_tenant(database)
    jobs = [await queued(database, tenant_id=tenant_id) for _ in range(5)]
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now()")
    assert set(await expire_unstarted(database, 10)) == set(jobs)
    cursor, read = FIRST, list[JobId]()
    await seen(database, tenant_id, 5)
    while page := await outcomes_after(database, tenant_id, cursor, 2):
        read.extend(outcome.job_id for outcome in page)
        cursor = page[-1].cursor
    assert read == sorted(jobs)


@pytest.mark.parametrize("statement_name", ["outcomes_of_tenant", "outcomes_of_all"])
async def test_the_order_is_read_from_an_index(database: Database, statement_name: str) -> None:
    """It is asked once a second by everybody who waits."""
    values: tuple[object, ...] = ("0", UUID(int=0), 50)
    if statement_name == "outcomes_of_tenant":
        values += (await a_tenant(database),)
    async with database.transaction() as connection:
        # The tables are empty, where everything else is cheaper.
        for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
            await connection.execute(f"SET LOCAL {name} = off")
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        plan = await connection.fetch(f"EXPLAIN {statement(statement_name)}", *values)
    text = "\n".join(row[0] for row in plan)
    assert "ai_jobs_ended" in text
    assert "Sort" not in text
