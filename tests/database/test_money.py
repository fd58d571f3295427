"""docs/protocol.md 6 as a table: what each end of a job charges and releases, whatever its calls did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import pytest

from schema import money
from schema.creation import JobMoney
from schema.database import Database
from schema.endings import Ending, end_run
from schema.errors import WriteRefused
from schema.events import append
from schema.job_ids import JobId
from schema.jobs import Reach, cancel_job
from schema.runs import AttemptOutcome, ClaimedRun, Failure, NextReason, put_back, store_checkpoint
from schema.tenants import Terms, set_terms
from schema.waiting import expire_unstarted
from tests.support.jobs import claim_one, job_row, queued, running, says
from tests.support.money import a_payer, account, agrees, at_most, called, entries, promise
from tests.support.postgres import ROOT

pytestmark = pytest.mark.anyio

_FLOAT_MONEY = re.compile(r"float\([^)]*usd|usd\w*: float|usd\w* = [^#]*float\(", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One call; `checkpoint`: what it gave is kept."""

    usd: str | None
    outcome: str = "succeeded"
    is_lower_bound: bool = False
    checkpoint: bool = False


@dataclass(frozen=True)
class Tried:
    """One attempt: its calls, and whether it put something out."""

    calls: tuple[Call, ...] = ()
    says: str = "text"


@dataclass(frozen=True)
class Case:
    """A job and its end. `charged` None: not known; `state` of the reservation afterwards."""

    money: JobMoney
    attempts: tuple[Tried, ...]
    end: str
    charged: str | None
    state: str = "charged"


ONE = at_most("1")
FIXED = at_most("1", price_usd="0.25")
NO_BOUND = JobMoney()
KEPT = Call("0.3", checkpoint=True)

CASES = {
    "known cost": Case(ONE, (Tried((Call("0.2"), Call("0.1"))),), "succeeded", "0.3"),
    "no call": Case(ONE, (Tried(),), "succeeded", "0"),
    "calls that cost nothing": Case(ONE, (Tried((Call("0"),)),), "succeeded", "0"),
    "more than reserved": Case(ONE, (Tried((Call("0.7"), Call("0.7"))),), "succeeded", "1"),
    "cost not known": Case(ONE, (Tried((Call("0.2"), Call(None))),), "succeeded", "1"),
    "a lower bound": Case(ONE, (Tried((Call("0.2", is_lower_bound=True),)),), "succeeded", "1"),
    "a call that failed and was dealt with": Case(
        ONE, (Tried((Call(None, "failed"), Call(None, "unknown"), Call("0.2"))),), "succeeded", "0.2"
    ),
    "fixed price": Case(FIXED, (Tried((Call("0.9"),)),), "succeeded", "0.25"),
    "fixed price, cost not known": Case(FIXED, (Tried((Call(None),)),), "succeeded", "0.25"),
    "fixed price over what was reserved": Case(at_most("0.1", "0.25"), (Tried(),), "succeeded", "0.1"),
    "fixed price of nothing": Case(at_most("1", "0"), (Tried((Call("0.9"),)),), "succeeded", "0"),
    "an earlier attempt is void": Case(
        ONE, (Tried((Call("0.4"),)), Tried((Call(None),)), Tried((Call("0.2"),))), "succeeded", "0.2"
    ),
    "an earlier attempt's checkpoint stands": Case(
        ONE, (Tried((KEPT, Call("0.4"))), Tried((Call("0.2"),))), "succeeded", "0.5"
    ),
    "a checkpoint of unknown cost": Case(
        ONE, (Tried((Call(None, checkpoint=True),)), Tried((Call("0.2"),))), "succeeded", "1"
    ),
    "no bound, known cost": Case(NO_BOUND, (Tried((Call("3"),)),), "succeeded", "3"),
    "no bound, unknown cost": Case(NO_BOUND, (Tried((Call(None),)),), "succeeded", None),
    "no bound, failed": Case(NO_BOUND, (Tried((Call("3"),)),), "failed", "0", "released"),
    "9 decimals": Case(ONE, (Tried((Call("0.123456789"), Call("0.000000001"))),), "succeeded", "0.12345679"),
    "ten times 0.1": Case(at_most("5"), (Tried(tuple(Call("0.1") for _ in range(10))),), "succeeded", "1"),
    "failed": Case(ONE, (Tried((Call("0.2"),)),), "failed", "0", "released"),
    "failed with a fixed price": Case(FIXED, (Tried((Call("0.2"),)),), "failed", "0", "released"),
    "exhausted": Case(ONE, (Tried((KEPT,)), Tried((Call("0.2"),))), "exhausted", "0", "released"),
    "lost": Case(ONE, (Tried((Call("0.2"),)),), "lost", "0", "released"),
    "expired": Case(ONE, (), "expired", "0", "released"),
    "cancelled while it waits": Case(ONE, (), "cancelled", "0", "released"),
    "cancelled after output": Case(ONE, (Tried((Call("0.2"), Call(None))),), "cancelled", "0.2"),
    "cancelled after output, fixed price": Case(FIXED, (Tried((Call("0.2"),)),), "cancelled", "0.2"),
    "cancelled after output, a lower bound": Case(
        ONE, (Tried((Call("0.2", "cancel_unconfirmed", is_lower_bound=True),)),), "cancelled", "0.2"
    ),
    "cancelled after output, more than reserved": Case(ONE, (Tried((Call("9"),)),), "cancelled", "1"),
    "cancelled after output, nothing known": Case(ONE, (Tried((Call(None),)),), "cancelled", None),
    "cancelled after output, no call": Case(ONE, (Tried(),), "cancelled", "0"),
    "cancelled before output": Case(ONE, (Tried((Call("0.2"),), says=""),), "cancelled", "0", "released"),
    "cancelled, its output is void": Case(
        ONE, (Tried((Call("0.4"),)), Tried((Call("0.2"),), says="")), "cancelled", "0", "released"
    ),
    "cancelled, its output is kept": Case(
        ONE, (Tried((KEPT, Call("0.4"))), Tried((Call("0.2"),), says="")), "cancelled", "0.5"
    ),
    "budget after output": Case(ONE, (Tried((Call("0.9"), Call("0.05"))),), "budget", "0.95"),
    "budget after output, more than reserved": Case(ONE, (Tried((Call("2"),)),), "budget", "1"),
    "budget before output": Case(ONE, (Tried((Call("2"),), says=""),), "budget", "0", "released"),
    "a provider that lies": Case(
        NO_BOUND, (Tried((Call("999999.999999999"),) * 1100),), "succeeded", "999999999.999999999"
    ),
}


async def _tried(database: Database, run: ClaimedRun, tried: Tried) -> int:
    """Do what the attempt did; returns its last seq."""
    last_seq = run.last_seq
    if tried.says:
        one = says(run, last_seq, tried.says)
        assert await append(database, [one])
        last_seq = one.last_seq
    for number, call in enumerate(tried.calls, 1):
        await called(database, run.lease, number, call.usd, outcome=call.outcome, is_lower_bound=call.is_lower_bound)
        if call.checkpoint:
            assert await store_checkpoint(database, run.lease, last_seq, number)
    return last_seq


async def _end(database: Database, run: ClaimedRun, last_seq: int, how: str) -> None:
    classes = {"failed": "permanent", "exhausted": "exhausted", "lost": "unknown", "budget": "budget"}
    if how == "succeeded":
        ending = Ending.succeeded(run.lease, last_seq, {})
    elif how == "cancelled":
        ending = Ending.cancelled(run.lease, last_seq, AttemptOutcome.CANCELLED)
    else:
        outcome = AttemptOutcome.LOST if how == "lost" else AttemptOutcome.FAILED
        ending = Ending.failed(run.lease, last_seq, Failure("c", classes[how], "Why; what to do."), outcome)
    assert await end_run(database, ending)


@pytest.mark.parametrize("name", CASES)
async def test_what_an_end_charges(database: Database, name: str) -> None:
    case = CASES[name]
    quota = None if case.money.reserved_usd is None else "5000"
    tenant = await a_payer(database, quota)
    job = {"tenant_id": tenant.id, "money": case.money}
    job_id = await (_ended(database, case, **job) if case.attempts else _ended_unstarted(database, case, **job))
    row = await promise(database, job_id)
    assert row is not None
    charged = None if case.charged is None else Decimal(case.charged)
    assert (row["state"], row["charged_usd"]) == (case.state, charged)
    assert row["settled_at"] is not None
    assert (await job_row(database, job_id))["reserved_usd"] == case.money.reserved_usd
    assert await account(database, tenant.id) == (None if quota is None else (0, charged or 0))
    await agrees(database)


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
async def test_a_job_that_can_cost_nothing_leaves_no_trace_in_the_books(database: Database, end: str) -> None:
    """Not even a tenant with a quota of 0 is refused it."""
    tenant = await a_payer(database, "0")
    run = await running(database, tenant_id=tenant.id, money=JobMoney(call_usd=Decimal(0), reserved_usd=Decimal(0)))
    await _end(database, run, run.last_seq, end)
    assert await promise(database, run.lease.job_id) is None
    assert await entries(database, run.lease.job_id) == []
    shown = await database.fetchval("SELECT charged_usd FROM outlive.jobs_shown WHERE id = $1", run.lease.job_id)
    assert shown == 0
    await agrees(database)


async def test_twenty_attempts_are_charged_once_and_only_the_one_that_counts(database: Database) -> None:
    tenant = await a_payer(database, "10")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"), max_attempts=20)
    for _ in range(19):
        last_seq = await _tried(database, run, Tried((Call("0.9"),)))
        assert await put_back(
            database, run.lease, last_seq, NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED, delay_s=0
        )
        run = await claim_one(database, run.kind)
        assert await account(database, tenant.id) == (1, 0)
    await _end(database, run, await _tried(database, run, Tried((Call("0.9"),))), "succeeded")
    assert await entries(database, run.lease.job_id) == [("reserve", 1, 0), ("charge", -1, Decimal("0.9"))]
    await agrees(database)


async def test_a_job_belongs_to_the_month_of_its_creation(database: Database) -> None:
    """It was created in one month and ends in another."""
    tenant = await a_payer(database, "10", "month")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    async with database.transaction() as connection:
        # As if it had been created then: the ledger takes no change otherwise.
        await connection.execute("SET LOCAL session_replication_role = replica")
        for table in ("reservations", "ledger"):
            await connection.execute(f"UPDATE outlive.quota_{table} SET month = '2001-02'")
        await connection.execute("UPDATE outlive.quota_accounts SET period = '2001-02'")
    later = await queued(database, tenant_id=tenant.id, money=at_most("10"))
    await _end(database, run, await _tried(database, run, Tried((Call("0.4"),))), "succeeded")
    assert await account(database, tenant.id, "2001-02") == (0, Decimal("0.4"))
    month = (await promise(database, later) or {})["month"]
    assert await account(database, tenant.id, month) == (10, 0)
    await agrees(database)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE outlive.quota_ledger SET charged_usd = 0",
        "DELETE FROM outlive.quota_ledger",
        "TRUNCATE outlive.quota_ledger",
        "TRUNCATE outlive.quota_ledger, outlive.quota_reservations",
    ],
)
async def test_the_ledger_is_only_added_to(database: Database, change: str) -> None:
    run = await running(database, tenant_id=(await a_payer(database, "10")).id, money=at_most("1"))
    before = await entries(database, run.lease.job_id)
    with pytest.raises(WriteRefused, match="23000"):
        await database.execute(change)
    assert await entries(database, run.lease.job_id) == before


async def test_a_tenant_with_books_cannot_be_deleted(database: Database) -> None:
    tenant = await a_payer(database, "10")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    await _end(database, run, run.last_seq, "failed")
    with pytest.raises(WriteRefused, match="23503"):
        await database.execute("DELETE FROM outlive.tenants")
    await agrees(database)


async def test_a_damaged_account_stops_no_job_from_ending(database: Database) -> None:
    """It is a copy; the ledger stays right, and the account is rebuilt from it."""
    tenant = await a_payer(database, "10")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    await database.execute("UPDATE outlive.quota_accounts SET reserved_usd = 0")
    await _end(database, run, run.last_seq, "failed")
    assert await entries(database, run.lease.job_id) == [("reserve", 1, 0), ("release", -1, 0)]
    assert await money.check(database) != []
    await money.rebuild(database)
    await agrees(database)


async def test_an_entry_by_hand_stops_no_job_from_ending(database: Database) -> None:
    tenant = await a_payer(database, "10")
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    await database.execute(
        "INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)"
        " VALUES ($1, outlive.this_month(), $2, 'charge', -1, 7)",
        tenant.id,
        run.lease.job_id,
    )
    await _end(database, run, run.last_seq, "failed")
    assert (await job_row(database, run.lease.job_id))["status"] == "failed"
    assert any(str(run.lease.job_id) in finding for finding in await money.check(database))


async def test_the_books_hold_more_than_one_job_can_cost(database: Database) -> None:
    """A tenant without a quota may have cost more than any quota allows when it is given one."""
    tenant = await a_payer(database)
    for _ in range(2):
        await queued(database, tenant_id=tenant.id, money=JobMoney(reserved_usd=Decimal("999999999.999999999")))
    await set_terms(database, tenant, Terms(quota_usd=Decimal(1), quota_period="total"))
    assert await account(database, tenant.id) == (Decimal("1999999999.999999998"), 0)
    await agrees(database)


def test_no_float_is_near_money() -> None:
    """A name that ends in usd is never made from a float or by one."""
    for package in ("schema", "gateway", "worker"):
        for path in (ROOT / package).rglob("*.py"):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                assert not _FLOAT_MONEY.search(line), f"{path.name}:{number}"
    for path in (ROOT / "schema").rglob("*.sql"):
        assert not re.search(r"usd[^,\n]*(double|real|float|money)\b", path.read_text("utf-8")), path.name


async def _ended(database: Database, case: Case, **job: object) -> JobId:
    run = await running(database, **job)
    last_seq = await _tried(database, run, case.attempts[0])
    for tried in case.attempts[1:]:
        assert await put_back(database, run.lease, last_seq, NextReason.RELEASED, AttemptOutcome.RELEASED)
        run = await claim_one(database, run.kind)
        last_seq = await _tried(database, run, tried)
    await _end(database, run, last_seq, case.end)
    return run.lease.job_id


async def _ended_unstarted(database: Database, case: Case, **job: object) -> JobId:
    job_id = await queued(database, **job)
    if case.end == "cancelled":
        await cancel_job(database, Reach(None), job_id)
    else:
        await database.execute("UPDATE outlive.ai_jobs SET start_before = now() WHERE id = $1", job_id)
        assert job_id in await expire_unstarted(database, 10)
    return job_id
