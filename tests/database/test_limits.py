"""How much runs at once: exact over all claimers, never less than it may be, and nothing held once all has ended."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import anyio
import pytest

from schema.database import Database
from schema.endings import Ending, end_run, end_runs
from schema.errors import NoSuchTenant, SettingInvalid
from schema.jobs import Reach, cancel_job
from schema.limits import Limit, fit_surplus, list_limits, remove_limit, set_limit
from schema.runs import AttemptOutcome, ClaimedRun, Failure, NextReason, put_back
from schema.waiting import expire_unstarted
from tests.support.crowds import Claimer, fill, tenants
from tests.support.jobs import a_tenant, expire, job_row, lease_row, locked, opened, queued, waits_for_a_lock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

# What runs and what is held, in one snapshot; runs by what the jobs say, not by what the permits say.
_NOW = """
SELECT n.scope,
    (SELECT count(*) FROM outlive.ai_jobs j JOIN outlive.tenants t ON t.id = j.tenant_id
        WHERE j.status = 'running'
        AND n.scope IN ('global', 'provider:' || j.provider, 'tenant:' || t.name)) AS running,
    (SELECT count(holder) FROM outlive.permits p WHERE p.scope = n.scope) AS held
FROM unnest($1::text[]) AS n(scope)
"""
_FAILURE = Failure("handler_error", "permanent", "The handler failed.")


async def _now(database: Database, *scopes: str) -> dict[str, tuple[int, int]]:
    """(running, held) of each scope."""
    return {row["scope"]: (row["running"], row["held"]) for row in await database.fetch(_NOW, list(scopes))}


async def _name(database: Database, tenant_id: UUID) -> str:
    return str(await database.fetchval("SELECT name FROM outlive.tenants WHERE id = $1", tenant_id))


async def _end(database: Database, run: ClaimedRun) -> bool:
    return await end_run(database, Ending.succeeded(run.lease, run.last_seq, None))


async def _check_nothing_is_held(database: Database) -> None:
    """As many free permits as the limits say, none held, none surplus."""
    await fit_surplus(database)
    rows = await database.fetch(
        "SELECT l.scope, l.most, count(p.slot) AS slots, count(p.holder) AS held,"
        " count(*) FILTER (WHERE p.surplus) AS surplus"
        " FROM outlive.limits l LEFT JOIN outlive.permits p USING (scope) GROUP BY l.scope, l.most"
    )
    assert [tuple(row) for row in rows if (row["slots"], row["held"], row["surplus"]) != (row["most"], 0, 0)] == []
    assert await database.fetchval("SELECT count(*) FROM outlive.job_leases") == 0


@dataclass
class House:
    """Claimers that take and end jobs at random, and somebody who counts all the while."""

    database: Database
    scopes: Sequence[str]
    claimers: list[Claimer]
    seen: dict[str, Counter[int]] = field(default_factory=dict)

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Within the block what runs is counted again and again, in snapshots in which permits must agree with it."""
        self.seen = {scope: Counter() for scope in self.scopes}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._count)
            yield
            tasks.cancel_scope.cancel()

    async def _count(self) -> None:
        while True:
            for scope, (running, held) in (await _now(self.database, *self.scopes)).items():
                assert running == held, (scope, running, held)
                self.seen[scope][running] += 1

    async def work(self, seed: int, claimer: Claimer) -> None:
        """Until nothing waits any more; what it has taken it ends in batches, some of it twice."""
        dice, mine = random.Random(seed), list[ClaimedRun]()
        while mine or await self.database.fetchval(
            "SELECT EXISTS (SELECT FROM outlive.ai_jobs WHERE status = 'queued')"
        ):
            mine += (await claimer.claim(dice.randint(1, 4))).runs
            dice.shuffle(mine)
            ending = [mine.pop() for _ in range(dice.randint(0, len(mine)))]
            if ending:
                await self._end_twice([Ending.succeeded(run.lease, run.last_seq, None) for run in ending])

    async def _end_twice(self, endings: Sequence[Ending]) -> None:
        """What a change of limits is at is ended alone, as a worker does it."""
        ended = await end_runs(self.database, endings)
        for one in endings:
            assert one.lease.job_id in ended or await end_run(self.database, one)
        assert await end_runs(self.database, endings) == set()

    async def all_work(self) -> None:
        async with anyio.create_task_group() as tasks:
            for seed, claimer in enumerate(self.claimers):
                tasks.start_soon(self.work, seed, claimer)


@pytest.fixture
async def wide(database_url: str) -> AsyncIterator[Database]:
    """A connection for each of 8 claimers and two who watch."""
    async with opened(database_url, 10) as database:
        yield database


async def test_a_limit_of_three_is_never_four(wide: Database) -> None:
    """Eight claimers; three at once is also reached, again and again."""
    tenant = await a_tenant(wide)
    await set_limit(wide, "global", 3)
    await fill(wide, tenant, 200)
    house = House(wide, ["global"], [Claimer(wide) for _ in range(8)])
    async with house.counted():
        await house.all_work()
    assert max(house.seen["global"]) == 3
    assert house.seen["global"][3] > 10
    assert await wide.fetchval("SELECT count(*) FROM outlive.ai_jobs WHERE status = 'succeeded'") == 200
    await _check_nothing_is_held(wide)


async def test_several_limits_at_once_hold_each(wide: Database) -> None:
    one, other = await tenants(wide, 2)
    names = [await _name(wide, tenant) for tenant in (one, other)]
    limits = {"global": 6, "provider:x": 3, "provider:y": 5, f"tenant:{names[0]}": 4, f"tenant:{names[1]}": 3}
    for scope, most in limits.items():
        await set_limit(wide, scope, most)
    for tenant in (one, other):
        for provider in ("x", "y", None):
            await fill(wide, tenant, 40, provider=provider)
    house = House(wide, list(limits), [Claimer(wide, providers=("x", "y")) for _ in range(8)])
    async with house.counted():
        await house.all_work()
    for scope, most in limits.items():
        assert max(house.seen[scope]) <= most
    assert max(house.seen["global"]) == 6
    await _check_nothing_is_held(wide)


async def test_as_much_runs_as_may_once_the_dust_has_settled(wide: Database) -> None:
    """Where jobs wait nothing stays free: each end is followed by a start of whoever ended it."""
    tenant = await a_tenant(wide)
    await set_limit(wide, "global", 3)
    await fill(wide, tenant, 200)
    claimers = [Claimer(wide) for _ in range(8)]

    async def take_and_end(claimer: Claimer) -> None:
        for _ in range(6):
            for run in (await claimer.claim(2)).runs:
                await _end(wide, run)
        await claimer.claim(2)

    for _ in range(3):
        async with anyio.create_task_group() as tasks:
            for claimer in claimers:
                tasks.start_soon(take_and_end, claimer)
        assert await _now(wide, "global") == {"global": (3, 3)}
        for row in await wide.fetch("SELECT job_id, run_token, attempt, last_seq FROM outlive.job_leases"):
            run = next(run for claimer in claimers for run in claimer.runs if run.lease.run_token == row["run_token"])
            assert await _end(wide, run)
    await _check_nothing_is_held(wide)


async def test_ending_twice_gives_nothing_back_of_somebody_else(database: Database) -> None:
    await set_limit(database, "global", 1)
    await fill(database, await a_tenant(database), 3)
    claimer = Claimer(database)
    (first,) = (await claimer.claim()).runs
    assert await _end(database, first)
    (second,) = (await claimer.claim()).runs
    assert not await _end(database, first)
    assert not await put_back(
        database, first.lease, first.last_seq, NextReason.RELEASED, AttemptOutcome.RELEASED, counted=False
    )
    assert (await claimer.claim()).runs == []
    assert await _now(database, "global") == {"global": (1, 1)}
    assert await _end(database, second)
    await _check_nothing_is_held(database)


@pytest.mark.parametrize(
    "end", ["failed", "cancelled", "put back", "delayed", "lost and put back", "lost and failed"]
)
async def test_every_end_of_a_run_gives_its_permits_back(database: Database, end: str) -> None:
    tenant = await a_tenant(database)
    scopes = ("global", "provider:x", f"tenant:{await _name(database, tenant)}")
    for scope in scopes:
        await set_limit(database, scope, 1)
    job_id = await queued(database, tenant_id=tenant, provider="x")
    (run,) = (await Claimer(database, providers=("x",)).claim()).runs
    assert set((await _now(database, *scopes)).values()) == {(1, 1)}
    lease, seq = run.lease, run.last_seq
    match end:
        case "failed":
            assert await end_run(database, Ending.failed(lease, seq, _FAILURE, AttemptOutcome.FAILED))
        case "cancelled":
            await cancel_job(database, Reach(tenant), job_id)
            assert not await _end(database, run)
            assert await end_run(database, Ending.cancelled(lease, seq, AttemptOutcome.CANCELLED))
        case "put back" | "delayed":
            delay_s = 60 if end == "delayed" else 0
            assert await put_back(
                database, lease, seq, NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED, delay_s=delay_s
            )
        case _:
            await expire(database, job_id)
            await _reap(database, run, over=end.endswith("failed"))
    assert await lease_row(database, job_id) is None
    assert set((await _now(database, *scopes)).values()) == {(0, 0)}
    await _check_nothing_is_held(database)


async def _reap(database: Database, run: ClaimedRun, *, over: bool) -> None:
    """As worker/reaper.py does it."""
    async with database.transaction() as connection:
        if over:
            ending = Ending.failed(run.lease, run.last_seq, _FAILURE, AttemptOutcome.LOST)
            assert await end_runs(connection, [ending])
        else:
            assert await put_back(connection, run.lease, run.last_seq, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)


async def test_what_never_ran_holds_nothing(database: Database) -> None:
    await set_limit(database, "global", 0)
    job_id = await queued(database)
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now()")
    assert list(await expire_unstarted(database, 10)) == [job_id]
    await _check_nothing_is_held(database)


async def test_zero_lets_nothing_start_and_more_does_again(database: Database) -> None:
    await set_limit(database, "global", 0)
    await fill(database, await a_tenant(database), 5)
    claimer = Claimer(database)
    assert (await claimer.claim(5)).runs == []
    await set_limit(database, "global", 2)
    assert len((await claimer.claim(5)).runs) == 2


async def test_a_lowered_limit_lets_what_runs_end_and_starts_nothing_above_it(database: Database) -> None:
    await set_limit(database, "global", 4)
    await fill(database, await a_tenant(database), 20)
    claimer = Claimer(database)
    runs = list((await claimer.claim(9)).runs)
    await set_limit(database, "global", 2)
    assert await list_limits(database) == [Limit("global", 2, True, 4)]
    for left in (3, 2):
        assert await _end(database, runs.pop(0))
        await fit_surplus(database)
        assert (await claimer.claim(9)).runs == []
        assert await _now(database, "global") == {"global": (left, left)}
    assert await _end(database, runs.pop(0))
    runs += (await claimer.claim(9)).runs
    assert await _now(database, "global") == {"global": (2, 2)}
    assert await fit_surplus(database) == []
    for run in runs:
        assert await _end(database, run)
    await _check_nothing_is_held(database)


async def test_a_lowered_limit_starts_nothing_even_before_anybody_has_looked(database: Database) -> None:
    """The permit that is given back may be one within the new limit, while others above it are still held."""
    await set_limit(database, "global", 3)
    await fill(database, await a_tenant(database), 20)
    claimer = Claimer(database)
    runs = list((await claimer.claim(9)).runs)
    await set_limit(database, "global", 1)
    for run in runs[:2]:
        assert await _end(database, run)
        assert (await claimer.claim(9)).runs == []


async def test_a_new_limit_counts_what_runs_already(database: Database) -> None:
    tenant = await a_tenant(database)
    await fill(database, tenant, 20, provider="x")
    claimer = Claimer(database, providers=("x",))
    runs = list((await claimer.claim(4)).runs)
    scopes = ("global", "provider:x", f"tenant:{await _name(database, tenant)}")
    for scope, most in zip(scopes, (5, 3, 10), strict=True):
        await set_limit(database, scope, most)
    await set_limit(database, "provider:y", 2)
    assert {each.scope: each.held for each in await list_limits(database)} == dict.fromkeys(scopes, 4) | {
        "provider:y": 0
    }
    assert (await claimer.claim(9)).runs == []
    for run in runs:
        assert await _end(database, run)
    await fit_surplus(database)
    runs = list((await claimer.claim(9)).runs)
    assert len(runs) == 3
    for run in runs:
        assert await _end(database, run)
    await _check_nothing_is_held(database)


async def test_a_limit_that_is_removed_and_set_again_counts_the_same_runs_once(database: Database) -> None:
    await set_limit(database, "global", 2)
    await fill(database, await a_tenant(database), 20)
    claimer = Claimer(database)
    runs = list((await claimer.claim(9)).runs)
    assert await remove_limit(database, "global")
    assert not await remove_limit(database, "global")
    runs += (await claimer.claim(3)).runs
    assert len(runs) == 5
    await set_limit(database, "global", 6)
    assert await _now(database, "global") == {"global": (5, 5)}
    runs += (await claimer.claim(9)).runs
    assert len(runs) == 6
    for run in runs:
        assert await _end(database, run)
    await _check_nothing_is_held(database)


async def test_what_ran_under_a_removed_limit_takes_nothing_from_a_new_one(database: Database) -> None:
    """Its lease still names a slot that now is another's."""
    await set_limit(database, "global", 1)
    await fill(database, await a_tenant(database), 20)
    claimer = Claimer(database)
    (old,) = (await claimer.claim(9)).runs
    await remove_limit(database, "global")
    await set_limit(database, "global", 2)
    (new,) = (await claimer.claim(9)).runs
    assert await _end(database, old)
    assert await _now(database, "global") == {"global": (1, 1)}
    assert await _end(database, new)
    await _check_nothing_is_held(database)


async def test_what_an_operator_set_stands(database: Database) -> None:
    await set_limit(database, "provider:x", 5, by_operator=False)
    await set_limit(database, "provider:x", 7, by_operator=False)
    assert await list_limits(database) == [Limit("provider:x", 7, False, 0)]
    await set_limit(database, "provider:x", 7)
    await set_limit(database, "provider:x", 9, by_operator=False)
    assert await list_limits(database) == [Limit("provider:x", 7, True, 0)]
    await remove_limit(database, "provider:x")
    await set_limit(database, "provider:x", 9, by_operator=False)
    assert await list_limits(database) == [Limit("provider:x", 9, False, 0)]


async def test_what_is_no_limit_is_refused(database: Database) -> None:
    for scope in ("", "globals", "provider:", "provider:Big One", "tenant", "user:ann", "global\n"):
        with pytest.raises(SettingInvalid, match="use global, provider:NAME or tenant:NAME"):
            await set_limit(database, scope, 1)
    for most in (-1, 10_001):
        with pytest.raises(SettingInvalid, match="0 to 10000"):
            await set_limit(database, "global", most)
    with pytest.raises(NoSuchTenant):
        await set_limit(database, "tenant:nobody", 1)


async def test_an_end_that_began_before_a_limit_was_set_gives_its_permit_back(
    database: Database, database_url: str
) -> None:
    """The bug: the statement of the end had its snapshot, waited for the job's row, and the limit was set meanwhile.
    The permit that the run was given by that was not in the snapshot, and stayed held for ever."""
    job_id = await queued(database)
    (run,) = (await Claimer(database).claim()).runs
    done: list[bool] = []

    async def put_it_back() -> None:
        reasons = NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED
        done.append(await put_back(database, run.lease, run.last_seq, *reasons))

    async def it_waits() -> bool:
        return await waits_for_a_lock(database, "cancel_requested_at IS NULL FOR UPDATE")

    held = locked(database_url, "SELECT FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE", job_id)
    async with anyio.create_task_group() as tasks, held:
        tasks.start_soon(put_it_back)
        await until(it_waits)
        await set_limit(database, "global", 5)
        assert await _now(database, "global") == {"global": (1, 1)}
    assert done == [True]
    assert (await job_row(database, job_id))["status"] == "queued"
    await _check_nothing_is_held(database)


async def test_limits_that_change_all_the_while_neither_leak_nor_deadlock(wide: Database) -> None:
    """Up, down, away and back, against claims and ends in batches: every job ends, and then nothing is held."""
    one, other = await tenants(wide, 2)
    scopes = ["global", "provider:x", f"tenant:{await _name(wide, one)}"]
    for tenant in (one, other):
        for provider in ("x", None):
            await fill(wide, tenant, 100, provider=provider)
    house = House(wide, scopes, [Claimer(wide, providers=("x",)) for _ in range(6)])
    rounds = 0

    async def change(seed: int) -> None:
        nonlocal rounds
        dice = random.Random(seed)
        while True:
            scope = dice.choice(scopes)
            if dice.random() < 0.2:
                await remove_limit(wide, scope)
            else:
                await set_limit(wide, scope, dice.randint(0, 8))
            if dice.random() < 0.5:
                await fit_surplus(wide)
            rounds += 1

    async with anyio.create_task_group() as tasks:
        for seed in (1, 2):
            tasks.start_soon(change, seed)
        await house.all_work()
        tasks.cancel_scope.cancel()
    assert rounds > 30
    assert await wide.fetchval("SELECT count(*) FROM outlive.ai_jobs WHERE status = 'succeeded'") == 400
    await _check_nothing_is_held(wide)


async def test_no_start_above_a_limit_that_was_lowered(wide: Database) -> None:
    """Right after `set_limit` has come back nothing starts above it, whatever is under way."""
    tenant = await a_tenant(wide)
    await set_limit(wide, "global", 8)
    await fill(wide, tenant, 300)
    house = House(wide, ["global"], [Claimer(wide) for _ in range(7)])
    dice = random.Random(7)
    checked = 0

    async def started() -> int:
        return int(await wide.fetchval("SELECT count(*) FROM outlive.job_attempts"))

    async def lower_and_raise() -> None:
        nonlocal checked
        while True:
            most = dice.randint(0, 4)
            await set_limit(wide, "global", most)
            for _ in range(5):
                starts = [await started(), await started()]
                running, _ = (await _now(wide, "global"))["global"]
                # It was above it all the while then: what is at the limit once does not get above it again.
                if running > most:
                    assert starts[0] == starts[1]
                    checked += 1
            await fit_surplus(wide)
            await set_limit(wide, "global", 8)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lower_and_raise)
        await house.all_work()
        tasks.cancel_scope.cancel()
    assert checked > 0
    await _check_nothing_is_held(wide)
