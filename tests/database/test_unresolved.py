"""What is learned of a call after its job has ended stands beside the first verdict, and its tenant pays for it."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import anyio
import pytest

from schema.calls import CallEnd, CallStart, close_call, job_costs, open_call
from schema.database import Database
from schema.endings import Ending, end_run
from schema.events import append
from schema.runs import AttemptOutcome, ClaimedRun, Failure, NextReason, put_back
from schema.unresolved import Unresolved, resolve, take_unresolved
from tests.support.jobs import call_rows, check_log, claim_one, job_row, queued, running, says
from tests.support.money import a_payer, account, agrees, at_most, called, entries, promise
from worker.providers.provider import CallOutcome

pytestmark = pytest.mark.anyio

FOUND = CallEnd(CallOutcome.SUCCEEDED, cost_usd=Decimal("0.3"), cost_source="provider", output_tokens=7)


async def lost_call(database: Database, run: ClaimedRun, number: int = 1) -> None:
    """One of which nobody knows what became, but whose generation has an id."""
    assert await open_call(database, run.lease, CallStart(number, "p", "m", asked=bytes(32)))
    end = CallEnd(CallOutcome.CANCEL_UNCONFIRMED, cost_is_lower_bound=True, resume_id=f"gen-{number}")
    assert await close_call(database, run.lease, number, end)


async def a_cancelled_job(database: Database, *, max_cost_usd: str = "1") -> tuple[UUID, UUID]:
    """(tenant, job) that had put something out by a call whose cost is not known."""
    tenant = await a_payer(database, "5")
    run = await running(database, tenant_id=tenant.id, money=at_most(max_cost_usd))
    await lost_call(database, run)
    assert await append(database, [says(run, run.last_seq, "text")])
    assert await end_run(database, Ending.cancelled(run.lease, run.last_seq + 1, AttemptOutcome.CANCELLED))
    return tenant.id, run.lease.job_id


async def take(database: Database) -> list[Unresolved]:
    return await take_unresolved(database, ["p"], 10)


async def test_it_stands_beside_the_first_verdict_and_is_paid(database: Database) -> None:
    tenant_id, job_id = await a_cancelled_job(database)
    before = await check_log(database, job_id)
    (call,) = await take(database)
    assert (call.job_id, call.resume_id, call.model) == (job_id, "gen-1", "m")
    assert await resolve(database, call, FOUND) == Decimal("0.3")
    (row,) = await call_rows(database, job_id)
    assert (row["outcome"], row["resolved_outcome"], row["output_tokens"]) == ("cancel_unconfirmed", "succeeded", 7)
    assert (row["cost_usd"], row["cost_is_lower_bound"]) == (Decimal("0.3"), False)
    assert [entry[0] for entry in await entries(database, job_id)] == ["reserve", "charge", "adjust"]
    assert await account(database, tenant_id) == (0, Decimal("0.3"))
    assert (await job_costs(database, [job_id]))[job_id].complete
    assert await check_log(database, job_id) == before
    await agrees(database)


async def test_never_more_than_was_reserved(database: Database) -> None:
    tenant_id, job_id = await a_cancelled_job(database, max_cost_usd="0.1")
    (call,) = await take(database)
    assert await resolve(database, call, FOUND) == Decimal("0.1")
    assert await account(database, tenant_id) == (0, Decimal("0.1"))
    row = await promise(database, job_id)
    assert row is not None
    assert (row["charged_usd"], row["adjusted_usd"]) == (None, Decimal("0.1"))
    await agrees(database)


async def test_fifty_that_learn_it_at_once_book_it_once(database: Database) -> None:
    tenant_id, job_id = await a_cancelled_job(database)
    (call,) = await take(database)
    told: list[Decimal | None] = []

    async def tell() -> None:
        told.append(await resolve(database, call, FOUND))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(tell)
    assert sorted(told, key=str) == [Decimal("0.3"), *[None] * 49]
    assert await account(database, tenant_id) == (0, Decimal("0.3"))
    assert len(await entries(database, job_id)) == 3
    await agrees(database)


async def test_a_job_that_failed_pays_nothing_whatever_is_learned(database: Database) -> None:
    tenant = await a_payer(database, "5")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    await lost_call(database, run)
    failure = Failure("cut", "unknown", "Nobody knows; look.")
    assert await end_run(database, Ending.failed(run.lease, run.last_seq, failure, AttemptOutcome.UNKNOWN))
    (call,) = await take(database)
    assert await resolve(database, call, FOUND) == 0
    assert await account(database, tenant.id) == (0, 0)
    assert (await job_costs(database, [run.lease.job_id]))[run.lease.job_id].known_usd == Decimal("0.3")
    await agrees(database)


async def test_one_asks_at_a_time_and_ever_less_often(database: Database) -> None:
    await a_cancelled_job(database)
    taken: list[Unresolved] = []

    async def one_worker() -> None:
        taken.extend(await take(database))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one_worker)
    assert len(taken) == 1
    waits = []
    for _ in range(4):
        (row,) = await call_rows(database, taken[0].job_id)
        waits.append((row["look_after"] - row["started_at"]).total_seconds())
        await database.execute("UPDATE outlive.provider_calls SET look_after = now()")
        assert len(await take(database)) == 1
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]


async def test_the_last_call_of_a_job_that_goes_on_is_left_to_its_next_attempt(database: Database) -> None:
    kind = "goes-on"
    job_id = await queued(database, kind=kind)
    run = await claim_one(database, kind)
    await lost_call(database, run)
    assert await take(database) == []
    await put_back(database, run.lease, run.last_seq, NextReason.UNKNOWN_RETRY, AttemptOutcome.UNKNOWN)
    assert await take(database) == []
    again = await claim_one(database, kind)
    await called(database, again.lease, 1, "0.1")
    assert [(call.attempt, call.call) for call in await take(database)] == [(1, 1)]
    assert (await job_row(database, job_id))["status"] == "running"
