"""Real concurrency on real connections: a quota is never passed, a job is settled once, the books always agree."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anyio
import pytest

from schema import database as pool
from schema import money
from schema.creation import JobMoney, Retry, create_job, retry_job
from schema.database import Database
from schema.endings import Ending, end_run, end_runs
from schema.errors import DatabaseBusy
from schema.job_ids import JobId, new_job_id
from schema.jobs import Reach, cancel_job
from schema.money import NotAdmitted, QuotaExceeded
from schema.runs import Ask, AttemptOutcome, ClaimedRun, Failure, claim
from schema.tenants import Tenant, Terms, set_terms
from schema.waiting import expire_unstarted
from tests.support.jobs import KIND, a_job, job_row, locked, opened, queued, running
from tests.support.money import Period, a_payer, account, agrees, at_most, called

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# Enough to meet every pair of them thousands of times; as many as fit into the time.
# OUTLIVE_TEST_RACES_S=600 lets all of them run.
ROUNDS = 10_000
ROUNDS_WITHIN_S = int(os.environ.get("OUTLIVE_TEST_RACES_S", "40"))
FEWEST_ROUNDS = 1_000


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Database]:
    """The pool of a second gateway."""
    async with opened(database_url) as second:
        yield second


async def _race(database: Database, other: Database, tenant: Tenant, amounts: list[Decimal]) -> list[Decimal]:
    """Create a job of each amount, all at once, over both pools; returns the amounts that were refused."""
    refused: list[Decimal] = []

    async def create(through: Database, amount: Decimal) -> None:
        try:
            assert await create_job(through, a_job(tenant.id, money=at_most(amount)))
        except QuotaExceeded as refusal:
            refused.append(refusal.amount_usd)

    async with anyio.create_task_group() as tasks:
        for number, amount in enumerate(amounts):
            tasks.start_soon(create, (database, other)[number % 2], amount)
    return refused


@pytest.mark.parametrize("period", ["total", "month"])
async def test_exactly_the_affordable_number_is_created(database: Database, other: Database, period: str) -> None:
    tenant = await a_payer(database, "0.37", "month" if period == "month" else "total")
    refused = await _race(database, other, tenant, [Decimal("0.01")] * 100)
    assert len(refused) == 63
    name = period if period == "total" else f"{datetime.now(UTC):%Y-%m}"
    assert await account(database, tenant.id, name) == (Decimal("0.37"), 0)
    assert await database.fetchval("SELECT count(*) FROM outlive.ai_jobs") == 37
    await agrees(database)


async def test_unequal_amounts_never_pass_it_and_nothing_that_fits_is_refused(
    database: Database, other: Database
) -> None:
    order = random.Random(7)
    tenant = await a_payer(database, "2.5")
    refused = await _race(database, other, tenant, [Decimal(order.randint(1, 10**9)).scaleb(-9) for _ in range(100)])
    reserved, _ = await account(database, tenant.id) or (None, None)
    assert reserved is not None
    assert reserved <= Decimal("2.5")
    assert refused
    assert min(refused) + reserved > Decimal("2.5")
    await agrees(database)


async def test_a_quota_is_used_up_to_the_last_billionth(database: Database, other: Database) -> None:
    tenant = await a_payer(database, "0.000000003")
    assert len(await _race(database, other, tenant, [Decimal("0.000000001")] * 5)) == 2
    await set_terms(database, tenant, Terms(quota_usd=Decimal(0), quota_period="total"))
    with pytest.raises(QuotaExceeded):
        await queued(database, tenant_id=tenant.id, money=at_most("0.000000001"))


async def test_twins_reserve_once(database: Database, other: Database) -> None:
    """The quota allows one, and one is what their key makes."""
    tenant = await a_payer(database, "1")
    made: Counter[object] = Counter()

    async def create(through: Database) -> None:
        try:
            made[await create_job(through, a_job(tenant.id, idempotency_key="twin", money=at_most("1")))] += 1
        except QuotaExceeded:
            made["refused"] += 1

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(create, (database, other)[number % 2])
    assert made[True] == 1
    assert await account(database, tenant.id) == (1, 0)
    await agrees(database)


def _ending(run: ClaimedRun, order: random.Random) -> Ending:
    lease, last_seq = run.lease, run.last_seq
    failure = Failure("c", order.choice(["permanent", "budget"]), "Why; what to do.")
    return order.choice(
        [
            Ending.succeeded(lease, last_seq, {}),
            Ending.failed(lease, last_seq, failure, AttemptOutcome.FAILED),
            Ending.cancelled(lease, last_seq, AttemptOutcome.CANCELLED),
        ]
    )


async def test_a_thousand_jobs_that_four_end_at_once_are_settled_once(database: Database, other: Database) -> None:
    """In batches, each in an order of its own over the tenants, and alone."""
    order = random.Random(11)
    tenants = [await a_payer(database) for _ in range(8)]
    for number in range(1000):
        await queued(database, tenant_id=tenants[number % 8].id, money=at_most("0.3"))
    for number, tenant in enumerate(tenants):
        period: Period = "month" if number % 2 else "total"
        await set_terms(database, tenant, Terms(quota_usd=Decimal(1000), quota_period=period))
    runs: list[ClaimedRun] = []
    while found := (await claim(database, Ask("tester", [KIND], [], 50, 60))).runs:
        runs.extend(found)
    assert len(runs) == 1000
    for run in runs[::3]:
        await called(database, run.lease, 1, order.choice(["0.1", "0.4", None]))
    ended: Counter[JobId] = Counter()

    async def end_all(through: Database, seed: int) -> None:
        mine = random.Random(seed)
        shuffled = mine.sample(runs, len(runs))
        while shuffled:
            size = mine.choice([1, 5, 40])
            batch, shuffled = shuffled[:size], shuffled[size:]
            done = await end_runs(through, [_ending(run, mine) for run in batch])
            alone = [run for run in batch if run.lease.job_id not in done][:3]
            ended.update(JobId(job_id) for job_id in done)
            ended.update([run.lease.job_id for run in alone if await end_run(through, _ending(run, mine))])

    async with anyio.create_task_group() as tasks:
        for seed in range(4):
            tasks.start_soon(end_all, (database, other)[seed % 2], seed)
    assert set(ended.values()) == {1}
    assert len(ended) == 1000
    assert await database.fetchval("SELECT count(*) FROM outlive.quota_reservations WHERE state <> 'open'") == 1000
    assert await database.fetchval("SELECT count(*) FROM outlive.quota_ledger WHERE entry <> 'reserve'") == 1000
    await agrees(database)


async def test_a_reservation_that_somebody_holds_delays_its_own_job_only(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pool._SESSION, "lock_timeout", "50ms")
    async with opened(database_url) as impatient:
        tenant = await a_payer(impatient, "10")
        held, free = [await running(impatient, tenant_id=tenant.id, money=at_most("1")) for _ in range(2)]
        endings = [Ending.succeeded(run.lease, run.last_seq, {}) for run in (held, free)]
        sql = "SELECT FROM outlive.quota_reservations WHERE job_id = $1 FOR UPDATE"
        async with locked(database_url, sql, held.lease.job_id):
            for together in (endings, endings[:1]):
                with pytest.raises(DatabaseBusy):
                    await end_runs(impatient, together)
            assert await end_run(impatient, endings[1])
            assert (await job_row(impatient, held.lease.job_id))["status"] == "running"
        assert await end_run(impatient, endings[0])
        await agrees(impatient)


async def test_a_job_that_is_created_while_its_tenant_gets_a_quota_is_in_the_account(
    database: Database, other: Database
) -> None:
    """A hundred times, begun together: whichever commits first."""
    order = random.Random(3)
    for _ in range(100):
        tenant = await a_payer(database)
        run = await running(database, tenant_id=tenant.id, money=at_most("0.5"))

        async def create(tenant: Tenant = tenant) -> None:
            await queued(database, tenant_id=tenant.id, money=at_most("0.25"))

        async def end(run: ClaimedRun = run) -> None:
            assert await end_run(database, Ending.succeeded(run.lease, run.last_seq, {}))

        async with anyio.create_task_group() as tasks:
            begun: list[Callable[[], Coroutine[Any, Any, None]]] = [create, create, end]
            for task in order.sample(begun, 3):
                tasks.start_soon(task)
            tasks.start_soon(set_terms, other, tenant, Terms(quota_usd=Decimal(1), quota_period="total"))
        assert await account(database, tenant.id) == (Decimal("0.5"), 0)
    await agrees(database)


class Chaos:
    """All that moves money, in any order, by many at once."""

    def __init__(self, database: Database, tenants: list[Tenant], seed: int) -> None:
        self.database = database
        self.tenants = tenants
        self.order = random.Random(seed)
        self.jobs: list[tuple[JobId, Tenant]] = []
        self.done: Counter[str] = Counter()

    async def rounds(self, count: int) -> None:
        steps = {self.create: 80, self.end: 60, self.cancel: 30, self.expire: 10, self.retry: 20}
        steps |= {self.change: 10, self.rebuild: 3, self.check: 5}
        ends_at = anyio.current_time() + ROUNDS_WITHIN_S
        for _ in range(count):
            if anyio.current_time() > ends_at:
                return
            (step,) = self.order.choices(list(steps), list(steps.values()))
            await step()
            self.done[step.__name__] += 1

    async def create(self) -> None:
        tenant = self.order.choice(self.tenants)
        usd = Decimal(self.order.randint(1, 10**8)).scaleb(-9)
        late = datetime.now(UTC) if self.order.random() < 0.2 else None
        bound = at_most(usd) if self.order.random() < 0.9 else JobMoney()
        new = a_job(tenant.id, money=bound, start_before=late)
        try:
            assert await create_job(self.database, new)
        except NotAdmitted:
            self.done["refused"] += 1
        else:
            self.jobs.append((new.id, tenant))

    async def end(self) -> None:
        runs = (await claim(self.database, Ask("tester", [KIND], [], self.order.randint(1, 6), 60))).runs
        for run in runs:
            if self.order.random() < 0.5:
                await called(self.database, run.lease, 1, self.order.choice(["0.01", "0.2", None]))
        endings = [_ending(run, self.order) for run in self.order.sample(list(runs), len(runs))]
        done = await end_runs(self.database, endings) if endings else set()
        for ending in endings:
            if ending.lease.job_id not in done:
                await end_run(self.database, ending)

    async def cancel(self) -> None:
        if self.jobs:
            await cancel_job(self.database, Reach(None), self.order.choice(self.jobs[-20:])[0])

    async def expire(self) -> None:
        await expire_unstarted(self.database, 10)

    async def retry(self) -> None:
        if self.jobs:
            job_id, tenant = self.order.choice(self.jobs)
            again = Retry(new_job_id(), job_id, tenant.id, "", str(new_job_id()), bytes(32), None)
            try:
                if await retry_job(self.database, again):
                    self.jobs.append((again.id, tenant))
            except NotAdmitted:
                self.done["refused"] += 1

    async def change(self) -> None:
        quota = self.order.choice([None, Decimal(0), Decimal("0.5"), Decimal(50), Decimal(50)])
        periods: list[Period] = ["total", "month"]
        terms = Terms(quota_usd=quota, quota_period=None if quota is None else self.order.choice(periods))
        await set_terms(self.database, self.order.choice(self.tenants), terms)

    async def rebuild(self) -> None:
        await money.rebuild(self.database)

    async def check(self) -> None:
        """In the middle of it all, and nobody waits for it."""
        assert await money.check(self.database) == []


@pytest.mark.timeout(2 * ROUNDS_WITHIN_S + 100)
async def test_up_to_ten_thousand_rounds_without_a_deadlock(database_url: str) -> None:
    """A deadlock, or a wait for a lock over its limit, would come out of here as DatabaseBusy."""
    async with opened(database_url, 8) as database:
        tenants = [await a_payer(database, "50" if n % 2 else None) for n in range(5)]
        all_of_them = [Chaos(database, tenants, seed) for seed in range(8)]
        async with anyio.create_task_group() as tasks:
            for chaos in all_of_them:
                tasks.start_soon(chaos.rounds, ROUNDS // 8)
        done = sum((chaos.done for chaos in all_of_them), Counter[str]())
        print(done)
        assert done.total() >= FEWEST_ROUNDS
        assert min(done[name] for name in ("create", "end", "cancel", "retry", "change", "rebuild", "check")) > 5
        await agrees(database)
        sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await database.fetchval(sql) == 0
