"""Tenants with a quota, what their jobs may cost, and whether the books agree."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Literal
from uuid import UUID

import asyncpg

from schema import money
from schema.calls import CallEnd, CallStart, close_call, open_call
from schema.creation import JobMoney
from schema.database import Database
from schema.runs import Lease
from schema.tenants import Tenant, Terms, add_tenant
from worker.providers.provider import CallOutcome

Usd = Decimal | int
Period = Literal["total", "month"]

# Written here anew, so that a mistake in what `money check` asks hides nothing from the tests.
_PROMISED = """
    SELECT j.id FROM outlive.ai_jobs j LEFT JOIN outlive.quota_reservations r ON r.job_id = j.id
    LEFT JOIN LATERAL (SELECT coalesce(sum(l.reserved_usd), 0) AS reserved_usd,
        coalesce(sum(l.charged_usd), 0) AS charged_usd FROM outlive.quota_ledger l WHERE l.job_id = j.id) AS s ON true
    WHERE (r.state = 'open') IS DISTINCT FROM (CASE WHEN r.job_id IS NOT NULL THEN j.finished_at IS NULL END)
        OR r.amount_usd IS DISTINCT FROM nullif(j.reserved_usd, 0)
        OR s.reserved_usd <> CASE WHEN r.state = 'open' THEN coalesce(r.amount_usd, 0) ELSE 0 END
        OR s.charged_usd <> coalesce(r.charged_usd, 0) + coalesce(r.adjusted_usd, 0)
        OR coalesce(r.charged_usd, 0) + coalesce(r.adjusted_usd, 0) > r.amount_usd
"""
_BOOKED = """
    SELECT t.name, a.period FROM outlive.quota_accounts a JOIN outlive.tenants t ON t.id = a.tenant_id
    WHERE (a.reserved_usd, a.charged_usd) <> (
        SELECT coalesce(sum(l.reserved_usd), 0), coalesce(sum(l.charged_usd), 0) FROM outlive.quota_ledger l
        WHERE l.tenant_id = a.tenant_id AND a.period IN ('total', l.month))
    UNION ALL
    SELECT t.name, l.month FROM outlive.quota_ledger l JOIN outlive.tenants t ON t.id = l.tenant_id
    WHERE t.quota_usd IS NOT NULL AND NOT EXISTS (SELECT FROM outlive.quota_accounts a
        WHERE a.tenant_id = t.id AND a.period = CASE t.quota_period WHEN 'total' THEN 'total' ELSE l.month END)
"""


async def a_payer(database: Database, quota_usd: str | None = None, period: Period = "total") -> Tenant:
    """A tenant with that quota, or with none."""
    quota = None if quota_usd is None else Decimal(quota_usd)
    terms = Terms(quota_usd=quota, quota_period=None if quota is None else period)
    return await add_tenant(database, f"t{uuid.uuid4().hex}", terms)


def at_most(usd: str | Decimal, price_usd: str | None = None) -> JobMoney:
    """The money of a job with such a max_cost_usd."""
    price = None if price_usd is None else Decimal(price_usd)
    return JobMoney(max_cost_usd=Decimal(usd), price_usd=price, reserved_usd=Decimal(usd))


async def account(database: Database, tenant_id: UUID, period: str = "total") -> tuple[Usd, Usd] | None:
    """(reserved, charged), None where there is no such account."""
    sql = "SELECT reserved_usd, charged_usd FROM outlive.quota_accounts WHERE tenant_id = $1 AND period = $2"
    row = await database.fetchrow(sql, tenant_id, period)
    return None if row is None else (row[0], row[1])


async def promise(database: Database, job_id: UUID) -> asyncpg.Record | None:
    return await database.fetchrow("SELECT * FROM outlive.quota_reservations WHERE job_id = $1", job_id)


async def entries(database: Database, job_id: UUID) -> list[tuple[str, Usd, Usd]]:
    """(entry, reserved, charged) of a job's ledger, oldest first."""
    sql = "SELECT entry, reserved_usd, charged_usd FROM outlive.quota_ledger WHERE job_id = $1 ORDER BY id"
    return [(row[0], row[1], row[2]) for row in await database.fetch(sql, job_id)]


async def agrees(database: Database) -> None:
    """Invariant 12: sum of the ledger = account, reserved = open reservations, each settled once."""
    assert [dict(row) for row in await database.fetch(_PROMISED)] == []
    assert [dict(row) for row in await database.fetch(_BOOKED)] == []
    assert await money.check(database) == []


async def called(
    database: Database,
    lease: Lease,
    call: int,
    cost_usd: str | None,
    *,
    outcome: str = CallOutcome.SUCCEEDED,
    is_lower_bound: bool = False,
) -> None:
    """A call that was made and closed with this cost, None = not known."""
    assert await open_call(database, lease, CallStart(call, "p", None))
    cost = None if cost_usd is None else Decimal(cost_usd)
    source = None if cost is None else "provider"
    end = CallEnd(outcome, cost_usd=cost, cost_source=source, cost_is_lower_bound=is_lower_bound)
    assert await close_call(database, lease, call, end)
