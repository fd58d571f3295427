"""What tenants reserved and were charged: the ledger is the truth, an account a copy of its sums that can be locked.

A job's end settles what it reserved by itself, in its own commit: the trigger of migration 0003.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from uuid import UUID

import asyncpg

from schema.database import Database
from schema.errors import OutliveError
from schema.executor import Executor
from schema.statements import statement

# What a person reads of a ledger that is wrong throughout.
FINDINGS = 50
# A ledger of hundreds of millions of entries is read within that; the server's own limit is lifted.
CHECK_SECONDS = 3600


class NotAdmitted(OutliveError):
    """Base of the reasons for which a tenant may not have another job now; nothing was written."""


class QueueFull(NotAdmitted):
    """As many of the tenant's jobs wait as may."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} jobs of this tenant wait already, which is as many as may; try again later")
        self.most = most


class QuotaExceeded(NotAdmitted):
    """The tenant's quota does not allow what the job would reserve. How much that is, a token's user is not told."""

    def __init__(self, amount_usd: Decimal, quota_usd: Decimal) -> None:
        super().__init__(
            "the tenant's quota does not allow what this job would reserve; set a lower max_cost_usd, "
            "or have the quota raised"
        )
        self.amount_usd = amount_usd
        self.quota_usd = quota_usd


class CostLimitRequired(NotAdmitted):
    """Nobody can say what the job may cost, and the tenant has a quota."""

    def __init__(self) -> None:
        super().__init__("nothing bounds what this job may cost, and its tenant has a quota; set max_cost_usd")


async def admit(executor: Executor, tenant_id: UUID, amount_usd: Decimal | None) -> None:
    """Reserve for a job that is created in the same transaction. Raises QueueFull, QuotaExceeded, CostLimitRequired.

    Creations of a tenant with a quota or a bound of its queue come one after the other from here on.
    """
    tenant = await executor.fetchrow(statement("lock_tenant"), tenant_id)
    await _check_queue(executor, tenant_id, tenant["max_queued"])
    quota_usd, period = tenant["quota_usd"], tenant["period"]
    if quota_usd is None or amount_usd == 0:
        return
    if amount_usd is None:
        raise CostLimitRequired
    await executor.fetchrow(statement("open_account"), tenant_id, period)
    if await executor.fetchrow(statement("reserve"), tenant_id, period, amount_usd, quota_usd) is None:
        raise QuotaExceeded(amount_usd, quota_usd)


async def _check_queue(executor: Executor, tenant_id: UUID, most: int | None) -> None:
    if most is None:
        return
    row = await executor.fetchrow(statement("count_waiting"), tenant_id, most)
    if row["waiting"] >= most:
        raise QueueFull(most)


async def check(database: Database) -> list[str]:
    """What is wrong, one sentence each; none where ledger, accounts, reservations and jobs agree.

    Nobody waits for it: what belongs together is committed together, so any snapshot agrees.
    """
    async with database.transaction() as connection:
        await connection.execute(statement("take_time"))
        accounts = await connection.fetch(statement("check_accounts"), timeout=CHECK_SECONDS)
        reservations = await connection.fetch(statement("check_reservations"), FINDINGS, timeout=CHECK_SECONDS)
    return [
        *(
            f"account of {row['tenant']}, {row['period']}: reserved {_usd(row['reserved_usd'])}, charged "
            f"{_usd(row['charged_usd'])}; its ledger says {_usd(row['ledger_reserved_usd'])} and "
            f"{_usd(row['ledger_charged_usd'])}; `money rebuild` mends it"
            for row in accounts
        ),
        *(
            f"job {row['job_id']} ({row['status'] or 'not there'}): reservation {row['state'] or 'not there'}, of "
            f"{_usd(row['amount_usd'])} charged {_usd(row['charged_usd'])}; its ledger has "
            f"{_usd(row['ledger_reserved_usd'])} reserved and {_usd(row['ledger_charged_usd'])} charged; "
            "somebody wrote to these tables by hand: put back what was there"
            for row in reservations
        ),
    ]


async def rebuild(database: Database) -> int:
    """Make all accounts anew from the ledger; returns how many there are."""
    for row in await database.fetch(statement("list_tenants")):
        async with books_closed(database, row["id"]) as connection:
            await rebuild_accounts(connection, row["id"])
    row = await database.fetchrow(statement("money_totals"))
    assert row is not None
    return int(row["accounts"])


async def rebuild_accounts(executor: Executor, tenant_id: UUID) -> None:
    """Of one tenant, inside books_closed."""
    await executor.fetch(statement("forget_accounts"), tenant_id)
    await executor.fetch(statement("rebuild_accounts"), tenant_id)


async def totals(database: Database) -> str:
    """How much there is, in words."""
    row = await database.fetchrow(statement("money_totals"))
    assert row is not None
    return f"{row['entries']} entries, {row['accounts']} accounts, {row['open_reservations']} open reservations"


@asynccontextmanager
async def books_closed(database: Database, tenant_id: UUID) -> AsyncIterator[asyncpg.Connection]:
    """A transaction in which nobody else reserves or settles for the tenant."""
    async with database.transaction() as connection:
        await connection.fetch(statement("close_books"), tenant_id)
        await connection.fetch(statement("hold_tenant"), tenant_id)
        yield connection


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount.normalize():f}"
