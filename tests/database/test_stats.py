"""Figures against rows that were written by hand: every one of them can be counted on one's fingers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from schema import stats as schema_stats
from schema.database import Database
from schema.job_ids import first_id_of
from schema.statements import statement
from schema.stats import CountingTooLong, ModelStats, Percentiles, Stats, window_stats
from schema.totals import totals
from tests.support.jobs import a_tenant

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
NOTHING = Percentiles(None, None, None)


@dataclass
class Book:
    """Writes rows; times are seconds before now, which `now` is for all of them."""

    database: Database
    tenant_id: UUID
    now: datetime

    def at(self, seconds_ago: float | None) -> datetime | None:
        return None if seconds_ago is None else self.now - timedelta(seconds=seconds_ago)

    async def job(
        self,
        created: float,
        started: float | None = None,
        finished: float | None = None,
        *,
        status: str = "succeeded",
        attempt: int = 1,
        provider: str | None = "p",
        model: str | None = "m",
        run_at: float | None = None,
        first_run_at: float | None = None,
    ) -> UUID:
        """A job and its first event; `run_at` as it is now, `first_run_at` as the log has it."""
        moment = self.at(created)
        assert moment is not None
        job_id = UUID(int=first_id_of(moment).int | uuid.uuid4().int & (1 << 62) - 1 | 7 << 76 | 1 << 63)
        failed = "bad" if status == "failed" else None
        await self.database.execute(
            "INSERT INTO outlive.ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, provider, model,"
            " status, attempt, max_attempts, last_seq, run_at, created_at, started_at, finished_at, error_code,"
            " error_class) VALUES ($1, $2, $3, $4, 'write', $5, $6, $7, $8, 20, 1, $9, $10, $11, $12, $13, $13)",
            *(job_id, self.tenant_id, str(job_id), bytes(32), provider, model, status, attempt),
            *(self.at(created if run_at is None else run_at), moment, self.at(started), self.at(finished), failed),
        )
        if first_run_at is not None:
            await self.database.execute(
                "INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data) VALUES ($1, 1, 'status', 0,"
                " jsonb_build_object('status', 'scheduled', 'run_at', outlive.rfc3339($2)))",
                *(job_id, self.at(first_run_at)),
            )
        return job_id

    async def attempt(
        self,
        job_id: UUID,
        started: float,
        finished: float | None = None,
        outcome: str = "succeeded",
        *,
        number: int = 1,
        counted: bool = True,
    ) -> None:
        await self.database.execute(
            "INSERT INTO outlive.job_attempts (job_id, attempt, worker, run_token, started_at, finished_at, outcome,"
            " counted) VALUES ($1, $2, 'w', gen_random_uuid(), $3, $4, $5, $6)",
            *(job_id, number, self.at(started), self.at(finished), outcome, counted),
        )

    async def call(
        self,
        job_id: UUID,
        started: float,
        cost: str | None = None,
        outcome: str = "succeeded",
        *,
        attempt: int = 1,
        call: int = 1,
        provider: str = "p",
        model: str | None = "m",
        lower_bound: bool = False,
        sent: bool = True,
        streamed: bool = False,
    ) -> None:
        at = self.at(started)
        # A call has an attempt; tests that look at attempts have written theirs.
        await self.database.execute(
            "INSERT INTO outlive.job_attempts (job_id, attempt, worker, run_token, started_at)"
            " VALUES ($1, $2, 'w', gen_random_uuid(), $3) ON CONFLICT DO NOTHING",
            *(job_id, attempt, at),
        )
        await self.database.execute(
            "INSERT INTO outlive.provider_calls (job_id, attempt, call, provider, model, started_at, sent_at,"
            " first_chunk_at, finished_at, outcome, cost_usd, cost_source, cost_is_lower_bound)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            *(job_id, attempt, call, provider, model, at, at if sent else None, at if streamed else None),
            *(None if outcome == "running" else at, outcome, None if cost is None else Decimal(cost)),
            *(None if cost is None else "provider", lower_bound),
        )


@pytest.fixture
async def book(database: Database) -> Book:
    return Book(database, await a_tenant(database), datetime.now(UTC).replace(microsecond=0))


async def stats_of(book: Book, window: timedelta = DAY) -> Stats:
    return (await window_stats(book.database, window, book.tenant_id)).together


async def test_where_nothing_happened_a_share_is_null_and_not_0(book: Book) -> None:
    for tenant_id in (book.tenant_id, None):
        found = await window_stats(book.database, DAY, tenant_id)
        assert found.together == Stats(0, 0, 0, 0, 0, 0, [], NOTHING, NOTHING)
        assert found.by_tenant == {}
        assert (found.together.share_without_retry, found.together.job_retry_rate) == (None, None)
        assert (found.together.provider_attempts, found.together.provider_unknown_outcomes) == (0, 0)


async def test_one_job_of_each_end(book: Book) -> None:
    """Three ended, one waits; a failed one's call is paid as well, and its job is not accepted."""
    good = await book.job(100, 90, 60)
    await book.attempt(good, 90, 60)
    await book.call(good, 85, "0.25")
    bad = await book.job(100, 99, 98, status="failed")
    await book.attempt(bad, 99, 98, "failed")
    await book.call(bad, 99, "0.05", "failed")
    await book.job(50, None, 40, status="cancelled", attempt=0)
    await book.job(5, status="queued", attempt=0)

    found = await stats_of(book)
    assert (found.jobs_created, found.jobs_accepted) == (4, 1)
    assert (found.share_without_retry, found.job_retry_rate) == (1.0, 0.0)
    assert found.models == [ModelStats("p", "m", Decimal("0.30"), 1, 2, 0, 0)]
    assert found.models[0].cost_per_accepted_job == Decimal("0.30")
    # Of two, the first is the median and the second is the rest.
    assert found.queue_wait_s == Percentiles(1, 10, 10)
    assert found.run_time_s == Percentiles(1, 30, 30)


async def test_a_retry_and_a_lost_lease(book: Book) -> None:
    smooth = await book.job(100, 90, 80)
    await book.attempt(smooth, 90, 80)
    bumpy = await book.job(100, 95, 10, attempt=3, run_at=20)
    await book.attempt(bumpy, 95, 60, "lost")
    await book.attempt(bumpy, 50, 40, "failed", number=2)
    await book.attempt(bumpy, 15, 10, number=3)
    found = await stats_of(book)
    assert (found.attempts, found.retries, found.leases_expired) == (4, 2, 1)
    assert (found.job_retry_rate, found.share_without_retry) == (0.5, 0.5)
    # run_at is now that of the last backoff; it waited from 100 to 95 all the same.
    assert found.queue_wait_s == Percentiles(5, 10, 10)


async def test_a_job_for_later_waits_from_then_even_after_a_backoff(book: Book) -> None:
    await book.job(500, 90, 80, run_at=97)
    assert (await stats_of(book)).queue_wait_s == Percentiles(7, 7, 7)
    await book.job(500, 90, 10, attempt=2, run_at=20, first_run_at=93)
    assert (await stats_of(book)).queue_wait_s == Percentiles(3, 7, 7)


async def test_a_log_that_is_younger_than_its_job_makes_nothing_negative(book: Book) -> None:
    """The event has milliseconds and the row has more."""
    await book.job(500, 90.0004, 10, attempt=2, run_at=20, first_run_at=90)
    assert (await stats_of(book)).queue_wait_s == Percentiles(0, 0, 0)


async def test_a_cost_that_is_not_known_is_never_0(book: Book) -> None:
    job_id = await book.job(100, 90, 60)
    await book.call(job_id, 90, None, "unknown")
    (model,) = (await stats_of(book)).models
    assert (model.cost_usd, model.cost_per_accepted_job) == (None, None)
    assert (model.accepted_jobs, model.calls, model.unknown_outcomes, model.calls_with_unknown_cost) == (1, 1, 1, 1)
    await book.call(job_id, 80, "0.1", call=2, lower_bound=True)
    await book.call(job_id, 70, "0.02", call=3)
    await book.call(job_id, 60, None, "running", call=4)
    (model,) = (await stats_of(book)).models
    assert (model.cost_usd, model.cost_per_accepted_job) == (Decimal("0.12"), Decimal("0.12"))
    assert (model.calls, model.unknown_outcomes, model.calls_with_unknown_cost) == (4, 1, 3)


async def test_what_was_accepted_without_a_call_cost_nothing(book: Book) -> None:
    await book.job(100, 90, 60, model=None)
    await book.job(100, 90, 60, provider=None, model=None)
    found = await stats_of(book)
    assert found.jobs_accepted == 2
    (model,) = found.models
    assert (model.provider, model.model, model.cost_usd, model.accepted_jobs) == ("p", None, Decimal(0), 1)
    assert model.cost_per_accepted_job == 0


async def test_a_cost_without_an_accepted_job_has_no_share(book: Book) -> None:
    job_id = await book.job(100, 90, 60, status="failed")
    await book.call(job_id, 90, "3")
    (model,) = (await stats_of(book)).models
    assert (model.cost_usd, model.cost_per_accepted_job) == (Decimal(3), None)


async def test_money_is_exact(book: Book) -> None:
    """A third of a cent has no end; a tenth, ten times, is one."""
    for _ in range(3):
        job_id = await book.job(100, 90, 60)
    for call in range(1, 11):
        await book.call(job_id, 90, "0.1", call=call)
    (model,) = (await stats_of(book)).models
    assert model.cost_usd == Decimal(1)
    assert model.cost_per_accepted_job == Decimal("0.333333333")


async def test_models_are_told_apart(book: Book) -> None:
    one, two = await book.job(100, 90, 60), await book.job(100, 90, 60, provider="q", model=None)
    await book.call(one, 90, "1")
    await book.call(two, 90, "2", provider="q", model=None)
    await book.call(two, 80, "4", provider="p", model="n", call=2)
    found = await stats_of(book)
    assert [(model.provider, model.model, model.cost_usd, model.accepted_jobs) for model in found.models] == [
        ("p", "m", Decimal(1), 1),
        ("p", "n", Decimal(4), 0),
        ("q", None, Decimal(2), 1),
    ]
    assert found.provider_attempts == 3


async def test_each_thing_counts_at_its_own_time(book: Book) -> None:
    """A job from before the window whose second attempt falls into it; one that is over; one a second inside."""
    window = timedelta(seconds=1000)
    old = await book.job(5000, 4990, 500, attempt=2)
    await book.attempt(old, 4990, 900, "lost")
    await book.call(old, 4990, "8", "unknown")
    await book.attempt(old, 600, 500, number=2)
    await book.call(old, 600, "1", attempt=2)
    over = await book.job(5000, 4000, 1100)
    await book.attempt(over, 4000, 1100)
    await book.call(over, 4000, "16")
    found = await stats_of(book, window)
    assert (found.jobs_created, found.jobs_accepted, found.accepted_at_once) == (0, 1, 0)
    assert (found.attempts, found.retries, found.leases_expired) == (1, 1, 1)
    assert found.models == [ModelStats("p", "m", Decimal(1), 1, 1, 0, 0)]
    assert found.queue_wait_s == NOTHING
    assert found.run_time_s == Percentiles(4490, 4490, 4490)
    await book.job(900, None, None, status="queued", attempt=0)
    await book.job(1100, None, None, status="queued", attempt=0)
    assert (await stats_of(book, window)).jobs_created == 1
    assert (await stats_of(book)).jobs_created == 4


async def test_a_job_that_runs_since_before_the_window_is_looked_at(book: Book) -> None:
    job_id = await book.job(90_000, 89_000, None, status="running")
    await book.attempt(job_id, 89_000, None, "running")
    await book.call(job_id, 10, None, "running")
    found = await stats_of(book)
    assert (found.jobs_created, found.attempts, found.provider_attempts) == (0, 0, 1)


async def test_a_gateway_whose_clock_is_behind_loses_no_job(book: Book) -> None:
    job_id = await book.job(1600, status="queued", attempt=0)
    await book.database.execute("UPDATE outlive.ai_jobs SET created_at = $2 WHERE id = $1", job_id, book.at(900))
    assert (await stats_of(book, timedelta(seconds=1000))).jobs_created == 1


async def test_tenants_see_their_own_and_an_operator_sees_each_and_all(book: Book) -> None:
    other = Book(book.database, await a_tenant(book.database), book.now)
    for each, cost in ((book, "1"), (other, "2"), (other, "4")):
        job_id = await each.job(100, 90, 60)
        await each.attempt(job_id, 90, 60)
        await each.call(job_id, 90, cost)
    assert [(await stats_of(each)).jobs_accepted for each in (book, other)] == [1, 2]
    assert (await stats_of(other)).models == [ModelStats("p", "m", Decimal(6), 2, 2, 0, 0)]
    found = await window_stats(book.database, DAY, None)
    assert found.together.models == [ModelStats("p", "m", Decimal(7), 3, 3, 0, 0)]
    assert found.by_tenant == {each.tenant_id: await stats_of(each) for each in (book, other)}


async def test_counting_ends_after_its_time(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the connection back as it was."""
    monkeypatch.setattr(schema_stats, "COUNTING_SECONDS", 0.2)
    with pytest.raises(CountingTooLong, match="shorter window"):
        async with schema_stats.counting(book.database, DAY) as (connection, _):
            await connection.fetchval("SELECT pg_sleep(30)")
    assert await book.database.fetchval("SHOW statement_timeout") == "30s"
    assert await book.database.fetchval("SHOW plan_cache_mode") == "auto"


async def test_totals_are_what_the_tables_hold(book: Book) -> None:
    await book.job(30, status="queued", attempt=0)
    one = await book.job(100_000, 90_000, 60_000, attempt=6)
    ends = [("lost", True), ("failed", True), ("failed", False), ("released", False), ("unknown", True)]
    for number, (outcome, counted) in enumerate([*ends, ("succeeded", True)], start=1):
        await book.attempt(one, 90_000, 80_000, outcome, number=number, counted=counted)
    await book.call(one, 100, None, "unknown", sent=False)
    await book.call(one, 100, None, "unknown", call=2)
    await book.call(one, 100, "0.5", "unknown", call=3, streamed=True)
    await book.call(one, 100, None, "running", call=4, sent=False)
    found = await totals(book.database)
    assert {(job.status, job.attempt, job.jobs) for job in found.jobs} == {("queued", 0, 1), ("succeeded", 6, 1)}
    assert [job.waited_s for job in found.jobs if job.waited_s is not None] == [pytest.approx(40, abs=10)]
    reasons = ("lease_expired", "transient_error", "throttled", "released", "unknown_retry")
    assert found.retries == dict.fromkeys(reasons, 1)
    assert found.leases_expired == 1
    assert {(call.outcome, call.phase, call.calls, call.cost_usd, call.cost_unknown) for call in found.calls} == {
        ("unknown", "lost", 1, None, 1),
        ("unknown", "sent", 1, None, 1),
        ("unknown", "streaming", 1, Decimal("0.5"), 0),
        ("running", "lost", 1, None, 1),
    }


@pytest.mark.parametrize("name", ["window_jobs", "window_attempts", "window_models"])
async def test_what_happened_to_jobs_of_a_tenant_is_read_from_indexes(book: Book, name: str) -> None:
    """Of the jobs of others nothing is read, however many there are."""
    values = (book.now, first_id_of(book.now), book.tenant_id)
    async with book.database.transaction() as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement(name)}", *values))
    assert "Seq Scan on ai_jobs" not in plan
