"""What happened since the tables were made: the counters behind /metrics.

They come from the tables, so they survive every restart and are the same on every gateway. What retention removes is
removed from them too, which a reader of counters takes for a restart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

import asyncpg

from schema.database import Database
from schema.statements import statement
from schema.stats import counting


@dataclass(frozen=True, slots=True)
class JobTotal:
    """Jobs alike in all of this. `waited_s`: of queued ones, how long the oldest could have run."""

    kind: str
    provider: str | None
    model: str | None
    status: str
    attempt: int
    jobs: int
    first_at: datetime
    waited_s: float | None


@dataclass(frozen=True, slots=True)
class CallTotal:
    """Calls alike in all of this. `cost_usd` is the sum of what is known, None where nothing is.

    `phase` is how far they had come: `sent`, `streaming`, or `lost` where nobody is left to say.
    """

    provider: str
    model: str | None
    outcome: str
    cost_source: str | None
    phase: str
    calls: int
    cost_usd: Decimal | None
    cost_unknown: int
    first_at: datetime


@dataclass(frozen=True, slots=True)
class Totals:
    """Everything, as it stood at one moment. `retries` by reason."""

    jobs: Sequence[JobTotal]
    calls: Sequence[CallTotal]
    retries: Mapping[str, int]
    leases_expired: int


async def totals(database: Database) -> Totals:
    """Reads each table once: some seconds for millions of rows. Raises CountingTooLong, DatabaseUnavailable."""
    async with counting(database, timedelta()) as (connection, _):
        return Totals(
            jobs=[_job_total(row) for row in await connection.fetch(statement("all_jobs"))],
            calls=[CallTotal(**row) for row in await connection.fetch(statement("all_calls"))],
            retries={row["reason"]: row["retries"] for row in await connection.fetch(statement("all_retries"))},
            leases_expired=await connection.fetchval(statement("all_leases_lost")),
        )


def _job_total(row: asyncpg.Record) -> JobTotal:
    return JobTotal(**{**row, "waited_s": None if row["waited_s"] is None else float(row["waited_s"])})
