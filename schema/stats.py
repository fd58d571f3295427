"""What happened in a window of time, counted from the tables, so that it is the same wherever it is asked.

Each thing is counted by its own time: a job is created when it was created and accepted when it ended, an attempt or
a call is of the moment at which it began, an expired lease of the moment at which it was taken back.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from uuid import UUID

import asyncpg

from schema.database import Database
from schema.errors import DatabaseUnavailable
from schema.job_ids import first_id_of
from schema.statements import statement

# Counting a million jobs takes some seconds; more is a question for a replica or a warehouse.
COUNTING_SECONDS = 10
# An id has its gateway's clock and created_at has PostgreSQL's; `python -m schema check` calls 5 s a fault.
CLOCKS_DIFFER = timedelta(hours=1)
# As many decimals as the tables keep.
_BILLIONTH = Decimal("1e-9")


class CountingTooLong(DatabaseUnavailable):
    """There is more to count than may be counted at once; ask for a shorter window."""

    def __init__(self) -> None:
        super().__init__(f"counting takes longer than {COUNTING_SECONDS} s; ask for a shorter window")


@asynccontextmanager
async def counting(database: Database, window: timedelta) -> AsyncIterator[tuple[asyncpg.Connection, datetime]]:
    """A connection whose statements all see one moment, and when the window up to that moment begins.

    Raises CountingTooLong, DatabaseUnavailable.
    """
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        row = await connection.fetchrow(statement("count_from"), window, str(COUNTING_SECONDS * 1000))
        try:
            yield connection, row["since"]
        except asyncpg.QueryCanceledError as error:
            raise CountingTooLong from error


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds that really occurred; None where nothing did."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ModelStats:
    """One model of one provider. `known_usd` is the sum of what is known of its calls, None where nothing is."""

    provider: str
    model: str | None
    known_usd: Decimal | None
    accepted_jobs: int
    calls: int
    unknown_outcomes: int
    calls_with_unknown_cost: int

    @property
    def cost_usd(self) -> Decimal | None:
        """US dollars. Without a call nothing was spent, and that is known; of calls of unknown cost nothing is."""
        return self.known_usd if self.calls else Decimal(0)

    @property
    def cost_per_accepted_job(self) -> Decimal | None:
        """US dollars with 9 decimals, failed jobs' calls too; None where nothing was accepted or no cost is known."""
        if self.cost_usd is None or not self.accepted_jobs:
            return None
        return (self.cost_usd / self.accepted_jobs).quantize(_BILLIONTH, ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Stats:
    """A window of one tenant, or of all. A share of nothing is None, which is not 0."""

    jobs_created: int
    jobs_accepted: int
    accepted_at_once: int
    attempts: int
    retries: int
    leases_expired: int
    models: Sequence[ModelStats]
    queue_wait_s: Percentiles
    run_time_s: Percentiles

    @property
    def share_without_retry(self) -> float | None:
        """Of the jobs that were accepted, those that took one attempt."""
        return self.accepted_at_once / self.jobs_accepted if self.jobs_accepted else None

    @property
    def job_retry_rate(self) -> float | None:
        """Attempts after the first / attempts."""
        return self.retries / self.attempts if self.attempts else None

    @property
    def provider_attempts(self) -> int:
        """Requests on the wire."""
        return sum(model.calls for model in self.models)

    @property
    def provider_unknown_outcomes(self) -> int:
        """Those of them of which nobody can say what became."""
        return sum(model.unknown_outcomes for model in self.models)


@dataclass(frozen=True, slots=True)
class WindowStats:
    """What was asked for together, and by tenant_id, as far as there is something to tell of a tenant."""

    since: datetime
    together: Stats
    by_tenant: Mapping[UUID, Stats]


async def window_stats(database: Database, window: timedelta, tenant_id: UUID | None) -> WindowStats:
    """The window that ends now, of one tenant or, where it is None, of all. Raises CountingTooLong."""
    async with counting(database, window) as (connection, since):
        values = (since, first_id_of(since - CLOCKS_DIFFER), tenant_id)
        jobs = {row["tenant_id"]: row for row in await connection.fetch(statement("window_jobs"), *values)}
        attempts = await connection.fetch(statement("window_attempts"), *values)
        models = await connection.fetch(statement("window_models"), *values)
    together = _stats(jobs.pop(None), attempts, models)
    attempts_of, models_of = _by_tenant(attempts), _by_tenant(models)
    each = {of: _stats(row, attempts_of[of], models_of[of]) for of, row in jobs.items()}
    return WindowStats(since, together, each)


def _by_tenant(rows: Sequence[asyncpg.Record]) -> defaultdict[UUID, list[asyncpg.Record]]:
    found = defaultdict[UUID, list[asyncpg.Record]](list)
    for row in rows:
        found[row["tenant_id"]].append(row)
    return found


def _stats(jobs: asyncpg.Record, attempts: Sequence[asyncpg.Record], models: Sequence[asyncpg.Record]) -> Stats:
    """From the rows of one tenant, or of several."""
    return Stats(
        jobs_created=jobs["created"],
        jobs_accepted=jobs["accepted"],
        accepted_at_once=jobs["accepted_at_once"],
        attempts=sum(row["attempts"] for row in attempts),
        retries=sum(row["retries"] for row in attempts),
        leases_expired=sum(row["lost"] for row in attempts),
        models=_models(models),
        queue_wait_s=_percentiles(jobs["waits"]),
        run_time_s=_percentiles(jobs["runs"]),
    )


def _models(rows: Sequence[asyncpg.Record]) -> list[ModelStats]:
    """Each model once, in the order of their names."""
    by_name = defaultdict[tuple[str, str | None], list[asyncpg.Record]](list)
    for row in rows:
        by_name[row["provider"], row["model"]].append(row)
    names = sorted(by_name, key=lambda name: (name[0], name[1] or ""))
    return [_model(*name, by_name[name]) for name in names]


def _model(provider: str, model: str | None, rows: Sequence[asyncpg.Record]) -> ModelStats:
    known = [row["cost_usd"] for row in rows if row["cost_usd"] is not None]
    return ModelStats(
        provider,
        model,
        known_usd=sum(known, Decimal(0)) if known else None,
        accepted_jobs=sum(row["accepted"] for row in rows),
        calls=sum(row["calls"] for row in rows),
        unknown_outcomes=sum(row["unknown"] for row in rows),
        calls_with_unknown_cost=sum(row["cost_unknown"] for row in rows),
    )


def _percentiles(times: Sequence[timedelta] | None) -> Percentiles:
    return Percentiles(*((None,) * 3 if times is None else (each / timedelta(seconds=1) for each in times)))
