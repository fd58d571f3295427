"""`money check` finds every kind of damage, and `money rebuild` makes the accounts what the ledger says."""

from __future__ import annotations

from decimal import Decimal

import pytest

from schema import money
from schema.creation import JobMoney
from schema.database import Database
from schema.endings import Ending, end_run
from schema.job_ids import JobId
from schema.tenants import Terms, set_terms
from tests.support.jobs import a_tenant, queued, running
from tests.support.money import Period, a_payer, account, agrees, at_most, called

pytestmark = pytest.mark.anyio

# $1 is the id of the job that is open or of the one that was charged; nothing of ours does any of this.
OF_ACCOUNTS = {
    "another amount": "UPDATE outlive.quota_accounts SET reserved_usd = reserved_usd + 0.000000001",
    "another charge": "UPDATE outlive.quota_accounts SET charged_usd = 0",
    "no account": "DELETE FROM outlive.quota_accounts",
    "one too many": "INSERT INTO outlive.quota_accounts"
    " SELECT tenant_id, '2001-01', 1, 0 FROM outlive.quota_accounts",
    "an entry that corrects": "INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd,"
    " charged_usd) SELECT tenant_id, month, job_id, 'adjust', 0, -0.1 FROM outlive.quota_ledger LIMIT 1",
}
OF_OPEN_JOBS = {
    "no reservation": "DELETE FROM outlive.quota_reservations WHERE job_id = $1",
    "a smaller reservation": "UPDATE outlive.quota_reservations SET amount_usd = 0.1 WHERE job_id = $1",
    "settled by hand": "UPDATE outlive.quota_reservations SET state = 'released', charged_usd = 0, settled_at = now()"
    " WHERE job_id = $1",
    "another tenant's": "UPDATE outlive.quota_reservations SET tenant_id = (SELECT id FROM outlive.tenants"
    " WHERE id <> tenant_id LIMIT 1) WHERE job_id = $1",
    "another month": "UPDATE outlive.quota_reservations SET month = '2001-01' WHERE job_id = $1",
    "ended behind our back": "UPDATE outlive.ai_jobs SET status = 'cancelled', finished_at = now() WHERE id = $1",
    "a charge by hand": "INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd,"
    " charged_usd) SELECT tenant_id, month, job_id, 'charge', 0, 0.5 FROM outlive.quota_ledger WHERE job_id = $1",
    "no entry": "DELETE FROM outlive.quota_ledger WHERE job_id = $1",
    "another amount of the job": "UPDATE outlive.ai_jobs SET reserved_usd = 7 WHERE id = $1",
}
OF_ENDED_JOBS = {
    "no reservation": "DELETE FROM outlive.quota_reservations WHERE job_id = $1",
    "another charge": "UPDATE outlive.quota_reservations SET charged_usd = 0 WHERE job_id = $1",
    "another state": "UPDATE outlive.quota_reservations SET state = 'released' WHERE job_id = $1",
    "open again": "UPDATE outlive.quota_reservations SET state = 'open', settled_at = NULL WHERE job_id = $1",
    "no entry": "DELETE FROM outlive.quota_ledger WHERE job_id = $1 AND entry = 'charge'",
}


async def _books(database: Database) -> tuple[JobId, JobId]:
    """An open job and one that was charged, of a tenant with a quota; others in good order beside them."""
    tenant = await a_payer(database, "100")
    waiting = await queued(database, tenant_id=tenant.id, money=at_most("1"))
    run = await running(database, tenant_id=tenant.id, money=at_most("1"))
    await called(database, run.lease, 1, "0.25")
    assert await end_run(database, Ending.succeeded(run.lease, run.last_seq, {}))
    free = await a_tenant(database)
    for bound in (None, Decimal(0), Decimal(1)):
        await queued(database, tenant_id=free, money=JobMoney(reserved_usd=bound))
    await agrees(database)
    return waiting, run.lease.job_id


async def _damage(database: Database, sql: str, *values: object) -> None:
    """As a superuser could, past every trigger."""
    async with database.transaction() as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(sql, *values)


@pytest.mark.parametrize("damage", OF_ACCOUNTS)
async def test_a_damaged_account_is_found_and_mended(database: Database, damage: str) -> None:
    await _books(database)
    await _damage(database, OF_ACCOUNTS[damage])
    (finding,) = await money.check(database)
    assert finding.startswith("account of ")
    assert "`money rebuild`" in finding
    assert await money.rebuild(database) == 1
    assert await money.check(database) == []


@pytest.mark.parametrize("damage", OF_OPEN_JOBS)
async def test_damage_to_an_open_job_s_books_is_found(database: Database, damage: str) -> None:
    waiting, _ = await _books(database)
    await _damage(database, OF_OPEN_JOBS[damage], waiting)
    await money.rebuild(database)
    (finding,) = await money.check(database)
    assert finding.startswith(f"job {waiting} ")


@pytest.mark.parametrize("damage", OF_ENDED_JOBS)
async def test_damage_to_an_ended_job_s_books_is_found(database: Database, damage: str) -> None:
    _, ended = await _books(database)
    await _damage(database, OF_ENDED_JOBS[damage], ended)
    await money.rebuild(database)
    (finding,) = await money.check(database)
    assert finding.startswith(f"job {ended} (succeeded)")


async def test_an_entry_of_a_job_that_there_is_not(database: Database) -> None:
    tenant = await a_payer(database, "1")
    await database.execute(
        "INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)"
        " VALUES ($1, '2001-01', gen_random_uuid(), 'charge', 0, 3)",
        tenant.id,
    )
    assert sorted(finding.split()[0] for finding in await money.check(database)) == ["account", "job"]


async def test_a_quota_may_come_go_and_change_with_the_books_in_order(database: Database) -> None:
    """What was reserved and charged before it came counts too."""
    tenant = await a_payer(database)
    await queued(database, tenant_id=tenant.id, money=at_most("1"))
    run = await running(database, tenant_id=tenant.id, money=at_most("2"))
    await called(database, run.lease, 1, "0.5")
    month = await database.fetchval("SELECT outlive.this_month()")
    changes: list[tuple[str, Period]] = [("9", "total"), ("0", "month"), ("3", "month")]
    for quota_usd, period in changes:
        await set_terms(database, tenant, Terms(quota_usd=Decimal(quota_usd), quota_period=period))
        assert await account(database, tenant.id, "total" if period == "total" else month) == (3, 0)
        assert await database.fetchval("SELECT count(*) FROM outlive.quota_accounts") == 1
        await agrees(database)
    with pytest.raises(money.QuotaExceeded):
        await queued(database, tenant_id=tenant.id, money=at_most("0.1"))
    assert await end_run(database, Ending.succeeded(run.lease, run.last_seq, {}))
    assert await account(database, tenant.id, month) == (1, Decimal("0.5"))
    await queued(database, tenant_id=tenant.id, money=at_most("1.5"))
    await set_terms(database, tenant, Terms())
    assert await account(database, tenant.id, month) is None
    await queued(database, tenant_id=tenant.id, money=JobMoney())
    await agrees(database)
    await set_terms(database, tenant, Terms(quota_usd=Decimal(1), quota_period="total"))
    assert await account(database, tenant.id) == (Decimal("2.5"), Decimal("0.5"))
    with pytest.raises(money.CostLimitRequired):
        await queued(database, tenant_id=tenant.id, money=JobMoney())
    await agrees(database)


async def test_what_had_no_bound_and_ends_under_a_quota_is_in_the_account(database: Database) -> None:
    tenant = await a_payer(database)
    run = await running(database, tenant_id=tenant.id)
    await called(database, run.lease, 1, "7")
    await set_terms(database, tenant, Terms(quota_usd=Decimal(1), quota_period="total"))
    assert await end_run(database, Ending.succeeded(run.lease, run.last_seq, {}))
    await agrees(database)
