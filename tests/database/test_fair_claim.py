"""Whose turn it is: shares by weight at every moment, nobody behind a crowd, and no job hidden by another's fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from uuid import UUID

import anyio
import pytest

from schema.database import Database
from schema.limits import set_limit
from tests.support.crowds import Claimer, fill, tenants
from tests.support.jobs import connected, opened, queued

pytestmark = pytest.mark.anyio


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _check_shares(starts: Sequence[UUID], weights: dict[UUID, int]) -> None:
    """At every moment: nobody more than one start ahead of its share, and any two tenants as near to each other as
    start-time fair queueing promises, which is one start of each."""
    count: Counter[UUID] = Counter()
    of_all = sum(weights.values())
    for number, tenant in enumerate(starts, 1):
        count[tenant] += 1
        for each, weight in weights.items():
            assert count[each] <= number * weight / of_all + 1, (number, count)
        for one, other in combinations(weights, 2):
            apart = abs(count[one] / weights[one] - count[other] / weights[other])
            assert apart <= 1 / weights[one] + 1 / weights[other] + 1e-9, (number, count)


@pytest.mark.parametrize("wanted", [1, 7, 50])
async def test_a_crowd_does_not_delay_a_single_job(database: Database, wanted: int) -> None:
    """50,000 jobs of one tenant, older and more urgent; the other's is the next start of whoever claims next."""
    crowd, single = await tenants(database, 2)
    await fill(database, crowd, 50_000, priority=100, apart_s=0.01)
    workers = [Claimer(database) for _ in range(3)]
    for worker in workers:
        assert set(await worker.tenants_of(2 * wanted, wanted)) == {crowd}
    for worker in workers:
        job_id = await queued(database, tenant_id=single, priority=-100)
        assert (await worker.claim(wanted)).runs[0].lease.job_id == job_id


async def test_a_worker_that_has_just_begun_lets_a_crowd_have_one_start_at_most(database: Database) -> None:
    """It remembers nothing, so both are equally near; what comes second is the next start, with a batch too."""
    crowd, single = await tenants(database, 2)
    await fill(database, crowd, 200, priority=100)
    await fill(database, single, 1)
    runs = (await Claimer(database).claim(50)).runs
    assert single in [run.tenant_id for run in runs[:2]]


@pytest.mark.parametrize("wanted", [1, 6, 50])
@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (1, 2, 5), (3, 1), (1000, 1, 7)])
async def test_shares_are_exact_at_every_start(database: Database, weights: tuple[int, ...], wanted: int) -> None:
    ids = await tenants(database, len(weights), weights)
    for tenant in ids:
        await fill(database, tenant, 300)
    starts = await Claimer(database).tenants_of(300, wanted)
    assert len(starts) == 300
    _check_shares(starts, dict(zip(ids, weights, strict=True)))


async def test_many_lanes_are_no_more_turns(database: Database) -> None:
    """A tenant with a hundred kinds has one turn like everybody, in one large claim too."""
    busy, other = await tenants(database, 2)
    kinds = [f"k{number}" for number in range(100)]
    for kind in kinds:
        await fill(database, busy, 3, kind=kind, priority=50)
    await fill(database, other, 100, kind="k0")
    for wanted in (1, 50):
        worker = Claimer(database, kinds)
        _check_shares(await worker.tenants_of(50, wanted), {busy: 1, other: 1})


async def test_each_of_several_workers_is_fair(database_url: str) -> None:
    """At once and on connections of their own, with what the others hold hidden from each."""
    weights = (1, 2, 5)
    async with opened(database_url, 9) as database:
        ids = await tenants(database, len(weights), weights)
        for tenant in ids:
            await fill(database, tenant, 1500)
        workers = [Claimer(database) for _ in range(8)]
        async with anyio.create_task_group() as tasks:
            for number, worker in enumerate(workers):
                tasks.start_soon(worker.tenants_of, 160, 1 + number * 3)
        taken = [run.lease.job_id for worker in workers for run in worker.runs]
        assert len(taken) == len(set(taken)) == 8 * 160
        for worker in workers:
            _check_shares([run.tenant_id for run in worker.runs], dict(zip(ids, weights, strict=True)))


async def test_who_was_away_gets_neither_credit_nor_punishment(database: Database) -> None:
    steady, guest = await tenants(database, 2, (1, 1))
    await fill(database, steady, 1000)
    worker = Claimer(database)
    await fill(database, guest, 20)
    await worker.tenants_of(40)
    assert set(await worker.tenants_of(200, 10)) == {steady}
    await fill(database, guest, 200)
    _check_shares(await worker.tenants_of(200), {steady: 1, guest: 1})
    assert worker.shares[guest] == 20 + 100


async def test_what_a_tenant_had_while_alone_is_not_held_against_it(database: Database) -> None:
    early, late = await tenants(database, 2)
    await fill(database, early, 500)
    worker = Claimer(database)
    await worker.tenants_of(300, 25)
    await fill(database, late, 500)
    _check_shares(await worker.tenants_of(200, 25), {early: 1, late: 1})


async def test_priority_then_age_within_a_tenant_over_all_its_lanes(database: Database) -> None:
    (tenant,) = await tenants(database, 1)
    wanted = []
    for priority, age_s, kind, provider in (
        (9, 1, "b", "x"),
        (9, 0.5, "a", None),
        (0, 900, "b", None),
        (0, 800, "a", "x"),
        (0, 700, "b", "x"),
        (-3, 999, "a", None),
    ):
        changes = {"priority": priority, "run_at": _ago(age_s), "kind": kind, "provider": provider}
        wanted.append(await queued(database, tenant_id=tenant, **changes))
    worker = Claimer(database, ("a", "b"), ("x",))
    assert [run.lease.job_id async for run in worker.starts(6, 2)] == wanted


async def test_two_thousand_tenants_all_get_their_turn(database: Database) -> None:
    ids = await tenants(database, 2000)
    await database.execute("UPDATE outlive.tenants SET weight = 1000 WHERE id = ANY($1)", ids[:50])
    for tenant in ids[:50]:
        await fill(database, tenant, 4, priority=100)
    await _one_each(database, ids[50:])
    worker = Claimer(database)
    starts = await worker.tenants_of(3000, 50)
    assert Counter(starts) == dict.fromkeys(ids[:50], 4) | dict.fromkeys(ids[50:], 1)


async def _one_each(database: Database, ids: Sequence[UUID]) -> None:
    """A job for each, made as `fill` makes them."""
    (first,) = await tenants(database, 1)
    await fill(database, first, len(ids))
    await database.execute(
        "UPDATE outlive.ai_jobs j SET tenant_id = t.id FROM ("
        "  SELECT id, row_number() OVER () AS n FROM unnest($1::uuid[]) AS u(id)) AS t, ("
        "  SELECT id, row_number() OVER () AS n FROM outlive.ai_jobs WHERE tenant_id = $2) AS mine"
        " WHERE mine.n = t.n AND j.id = mine.id",
        *(list(ids), first),
    )


@pytest.mark.parametrize("of_one_tenant", [True, False])
@pytest.mark.parametrize("why", ["kind", "provider", "limit of provider", "limit of tenant"])
async def test_a_thousand_that_cannot_run_hide_nobody(database: Database, why: str, *, of_one_tenant: bool) -> None:
    """They are the first of the queue, older and more urgent; of another tenant, or of the same, which mixes both."""
    crowd, other = await tenants(database, 2)
    if of_one_tenant and why != "limit of tenant":
        other = crowd
    kind, provider = ("absent" if why == "kind" else "write"), ("absent" if why == "provider" else "full")
    name = await database.fetchval("SELECT name FROM outlive.tenants WHERE id = $1", crowd)
    if why.startswith("limit"):
        await set_limit(database, "provider:full" if why == "limit of provider" else f"tenant:{name}", 0)
    await fill(database, crowd, 1000, kind=kind, provider=provider, priority=100, apart_s=1)
    await fill(database, other, 60, provider="free", priority=-100)
    worker = Claimer(database, providers=("full", "free"))
    for wanted in (1, 50):
        claimed = await worker.claim(wanted)
        assert [run.provider for run in claimed.runs] == ["free"] * wanted
        assert not claimed.more


@pytest.mark.parametrize("free", [1, 3])
async def test_what_is_nearly_full_hides_nobody_within_one_claim(database: Database, free: int) -> None:
    """The last permits go, and the rest of the same claim are jobs that need none of them."""
    crowd, other = await tenants(database, 2)
    await set_limit(database, "provider:x", free)
    await fill(database, crowd, 1000, provider="x", priority=100, apart_s=1)
    await fill(database, crowd, 100, provider="y", priority=-100)
    await fill(database, other, 100, provider="x")
    claimed = await Claimer(database, providers=("x", "y")).claim(30)
    assert Counter(run.provider for run in claimed.runs) == {"x": free, "y": 30 - free}
    assert not claimed.more


async def test_a_full_house_starts_nothing_and_does_not_ask_again(database: Database) -> None:
    (tenant,) = await tenants(database, 1)
    await set_limit(database, "global", 2)
    await fill(database, tenant, 1000)
    worker = Claimer(database)
    assert len((await worker.claim(50)).runs) == 2
    claimed = await worker.claim(50)
    assert (len(claimed.runs), claimed.more) == (0, False)


async def test_jobs_that_came_too_late_or_wait_for_their_time_hide_nobody(database: Database) -> None:
    """Of one tenant and of 300, before anybody has failed or promoted them."""
    late, *many, other = await tenants(database, 302)
    await fill(database, late, 1000, priority=100, apart_s=1)
    await _one_each(database, many)
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now() - interval '1 s', run_at = '2020-01-01'")
    await fill(database, late, 500, status="scheduled", priority=100)
    job_id = await queued(database, tenant_id=other, priority=-100)
    claimed = await Claimer(database).claim(1)
    assert [run.lease.job_id for run in claimed.runs] == [job_id]


@pytest.mark.parametrize("of_many_tenants", [True, False])
async def test_rows_that_somebody_is_at_are_passed_over(
    database: Database, database_url: str, *, of_many_tenants: bool
) -> None:
    """However many, in one claim; `more` says that they are still there."""
    ids = await tenants(database, 400)
    if of_many_tenants:
        await _one_each(database, ids[1:])
    else:
        await fill(database, ids[0], 399, priority=100)
    async with connected(database_url) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT FROM outlive.ai_jobs FOR UPDATE")
        await fill(database, ids[0], 3, priority=-100)
        worker = Claimer(database)
        with anyio.fail_after(5):
            assert [run.tenant_id for run in (await worker.claim(3)).runs] == [ids[0]] * 3
            claimed = await worker.claim(3)
            assert (len(claimed.runs), claimed.more) == (0, True)
        await other.execute("ROLLBACK")
    assert len((await worker.claim(3)).runs) == 3


async def test_what_others_take_is_not_counted_as_a_tenant_s_turn(database: Database, database_url: str) -> None:
    """Its first jobs are held by another claim: its later ones are started with the tags of the first."""
    one, other = await tenants(database, 2)
    await fill(database, one, 40)
    await fill(database, other, 40)
    async with connected(database_url) as holder:
        await holder.execute("BEGIN")
        await holder.execute(
            "SELECT FROM outlive.ai_jobs WHERE tenant_id = $1 ORDER BY run_at LIMIT 20 FOR UPDATE", one
        )
        worker = Claimer(database)
        await worker.claim(4)
        assert worker.shares[one] == worker.shares[other] == 2
        assert all(tag <= 2 for tag in worker.turns.tags.values())
        await holder.execute("ROLLBACK")
