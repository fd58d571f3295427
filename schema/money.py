"""What tenants reserved and were charged: the ledger is the truth, an account a copy of its sums that can be locked.

A job's end settles what it reserved by itself, in its own commit: the trigger of migration 0003.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from uuid import UUID

from schema.database import Database
from schema.errors import OutliveError
from schema.executor import Executor
from schema.statements import statement

# What a person reads of a ledger that is wrong throughout.
FINDINGS = 50


class NotAdmitted(OutliveError):
    """Base of the reasons for which a tenant may not have another job now; nothing was written."""


class QueueFull(NotAdmitted):
    """As many of the tenant's jobs wait as may."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} jobs of this tenant wait already, which is as many as may; try again later")
        self.most = most


class QuotaExceeded(NotAdmitted):
    """The tenant's quota does not allow what the job would reserve."""

    def __init__(self, amount_usd: Decimal, quota_usd: Decimal) -> None:
        super().__init__(
            f"the job would reserve {amount_usd:f} US dollars and the quota of {quota_usd:f} does not allow it; "
            "set a lower max_cost_usd, or have the quota raised"
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
    """What is wrong, one sentence each; none where ledger, accounts, reservations and jobs agree."""
    async with alone_with_the_ledger(database) as connection:
        accounts = await connection.fetch(statement("check_accounts"))
        reservations = await connection.fetch(statement("check_reservations"), FINDINGS)
    return [
        *(
            f"account of {row['tenant']}, {row['period']}: reserved {_usd(row['reserved_usd'])}, charged "
            f"{_usd(row['charged_usd'])}; its ledger says {_usd(row['ledger_reserved_usd'])} and "
            f"{_usd(row['ledger_charged_usd'])}; `money rebuild` mends it"
            for row in accounts
        ),
        *(
            f"reservation of job {row['job_id']} ({row['status']}): {row['state']}, of {_usd(row['amount_usd'])} "
            f"charged {_usd(row['charged_usd'])}; its ledger has {_usd(row['ledger_reserved_usd'])} reserved and "
            f"{_usd(row['ledger_charged_usd'])} charged; somebody wrote to these tables by hand"
            for row in reservations
        ),
    ]


async def rebuild(database: Database) -> int:
    """Make all accounts anew from the ledger; returns how many there are."""
    async with alone_with_the_ledger(database) as connection:
        await rebuild_accounts(connection)
        return int((await connection.fetchrow(statement("money_totals")))["accounts"])


async def rebuild_accounts(executor: Executor, tenant_id: UUID | None = None) -> None:
    """Of one tenant or all, inside alone_with_the_ledger."""
    await executor.fetch(statement("forget_accounts"), tenant_id)
    await executor.fetch(statement("rebuild_accounts"), tenant_id)


async def totals(database: Database) -> str:
    """How much there is, in words."""
    row = await database.fetchrow(statement("money_totals"))
    assert row is not None
    return f"{row['entries']} entries, {row['accounts']} accounts, {row['open_reservations']} open reservations"


@asynccontextmanager
async def alone_with_the_ledger(database: Database, tenant_id: UUID | None = None) -> AsyncIterator[Executor]:
    """A transaction in which nobody else reserves for the tenant (all without one) or settles anything."""
    async with database.transaction() as connection:
        await connection.fetch(statement("lock_tenants"), tenant_id)
        await connection.fetch(statement("lock_ledger"))
        yield connection


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount.normalize():f}"
