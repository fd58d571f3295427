"""Leases are renewed together, and a run stops before its lease can have run out."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime

import anyio
import pytest

from schema.database import Database
from schema.runs import AttemptOutcome, ClaimedRun, Lease, NextReason, put_back
from tests.support.jobs import claim_one, lease_row, locked, opened, running
from tests.support.proxy import proxy_to
from tests.support.waiting import until
from worker import leases as keeping
from worker.leases import LeaseKeeper

pytestmark = pytest.mark.anyio

_LOCK = "SELECT 1 FROM outlive.job_leases WHERE job_id = $1 FOR UPDATE"


class Held:
    """A holder that notes when it was told what."""

    def __init__(self, run: ClaimedRun, held_until: float) -> None:
        self.lease: Lease = run.lease
        self.held_until = held_until
        self.renew_until = math.inf
        self.lost = anyio.Event()
        self.given_up = anyio.Event()
        self.given_up_at = 0.0

    def lose_lease(self) -> None:
        self.lost.set()

    def give_up_lease(self) -> None:
        self.given_up_at = self.given_up_at or time.monotonic()
        self.given_up.set()

    @property
    def untouched(self) -> bool:
        return not (self.lost.is_set() or self.given_up.is_set())


def _holding(keeper: LeaseKeeper, run: ClaimedRun) -> Held:
    held = Held(run, keeper.first_deadline(time.monotonic()))
    keeper.hold(held)
    return held


async def _until_of(database: Database, run: ClaimedRun) -> datetime:
    row = await lease_row(database, run.lease.job_id)
    assert row is not None
    lease_until: datetime = row["lease_until"]
    return lease_until


async def test_a_run_without_a_database_stops_before_its_lease_ran_out(database: Database, database_url: str) -> None:
    """Black-holed, by this host's monotonic clock from before the last good heartbeat was sent."""
    lease_s = 1.5
    run = await running(database)
    async with proxy_to(database_url) as proxy, opened(proxy.url) as far, anyio.create_task_group() as tasks:
        keeper = LeaseKeeper(far, lease_s)
        claimed_at = time.monotonic()
        held = _holding(keeper, run)
        before = await _until_of(database, run)
        tasks.start_soon(keeper.run)
        await until(lambda: _moved(database, run, before))
        renewed_before = time.monotonic()
        proxy.freeze()
        await held.given_up.wait()
        assert claimed_at + lease_s * 0.5 < held.given_up_at < renewed_before + lease_s
        assert not held.lost.is_set()
        tasks.cancel_scope.cancel()
        proxy.thaw()


async def _moved(database: Database, run: ClaimedRun, before: datetime) -> bool:
    return await _until_of(database, run) != before


async def test_a_locked_lease_kills_no_run_and_delays_no_other(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 0.05)
    stuck, free = await running(database), await running(database)
    keeper = LeaseKeeper(database, 3)
    async with anyio.create_task_group() as tasks:
        holders = [_holding(keeper, run) for run in (stuck, free)]
        async with locked(database_url, _LOCK, stuck.lease.job_id):
            stood_at = await _until_of(database, stuck)
            tasks.start_soon(keeper.run)
            for _ in range(3):
                before = await _until_of(database, free)
                await until(lambda before=before: _moved(database, free, before))  # type: ignore[misc]
            assert await _until_of(database, stuck) == stood_at
        await until(lambda: _moved(database, stuck, stood_at))
        assert all(held.untouched for held in holders)
        tasks.cancel_scope.cancel()


async def test_a_skipped_heartbeat_is_asked_again_within_the_lease_however_short(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fixed pause would be too long for a short lease: here it would never end."""
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 1e6)
    stuck, free = await running(database), await running(database)
    keeper = LeaseKeeper(database, 4)
    async with anyio.create_task_group() as tasks:
        before, before_free = await _until_of(database, stuck), await _until_of(database, free)
        async with locked(database_url, _LOCK, stuck.lease.job_id):
            _holding(keeper, stuck), _holding(keeper, free)
            tasks.start_soon(keeper.run)
            await until(lambda: _moved(database, free, before_free))
        await until(lambda: _moved(database, stuck, before))
        tasks.cancel_scope.cancel()


async def test_a_lease_that_somebody_took_is_lost_and_the_others_are_not(database: Database) -> None:
    taken, free = await running(database), await running(database)
    keeper = LeaseKeeper(database, 3)
    lost, kept = _holding(keeper, taken), _holding(keeper, free)
    assert await put_back(database, taken.lease, 2, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        await lost.lost.wait()
        assert kept.untouched
        assert not lost.given_up.is_set()
        tasks.cancel_scope.cancel()


async def test_a_released_run_is_neither_renewed_nor_told(database: Database) -> None:
    gone, stays = await running(database), await running(database)
    keeper = LeaseKeeper(database, 3)
    released, _ = _holding(keeper, gone), _holding(keeper, stays)
    keeper.release(released)
    before, before_stays = await _until_of(database, gone), await _until_of(database, stays)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        await until(lambda: _moved(database, stays, before_stays))
        tasks.cancel_scope.cancel()
    assert await _until_of(database, gone) == before
    assert released.untouched


async def test_the_deadline_counts_from_before_the_heartbeat_was_sent(database: Database, database_url: str) -> None:
    """An answer that took long must not move the deadline by as much."""
    run = await running(database)
    async with proxy_to(database_url) as proxy, opened(proxy.url) as far:
        keeper = LeaseKeeper(far, 60)
        held = _holding(keeper, run)
        await far.fetchval("SELECT 1")
        proxy.delay_s = 0.15
        sent_at = time.monotonic()
        assert await keeper._beat(far, asyncio.get_running_loop())
        assert time.monotonic() - sent_at > 0.25
        assert held.held_until - keeper.first_deadline(sent_at) < 0.1
        proxy.delay_s = 0


def _busy(seconds: float) -> None:
    """What a handler does that computes in the event loop."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


async def test_a_loop_that_is_blocked_for_longer_than_a_lease_loses_none(database: Database) -> None:
    lease_s = 1.0
    run = await running(database)
    keeper = LeaseKeeper(database, lease_s)
    held = _holding(keeper, run)
    async with anyio.create_task_group() as tasks:
        before = await _until_of(database, run)
        tasks.start_soon(keeper.run)
        await until(lambda: _moved(database, run, before))
        _busy(2 * lease_s)
        valid = "SELECT lease_until > clock_timestamp() FROM outlive.job_leases WHERE job_id = $1"
        assert await database.fetchval(valid, run.lease.job_id)
        await anyio.sleep(lease_s * keeping.MARGIN_SHARE)  # the watch has looked by then
        assert held.untouched
        tasks.cancel_scope.cancel()


async def test_what_hangs_beyond_its_time_limit_is_not_renewed_for_ever(database: Database) -> None:
    hangs, goes_on = await running(database), await running(database)
    keeper = LeaseKeeper(database, 1)
    hanging, going = _holding(keeper, hangs), _holding(keeper, goes_on)
    hanging.renew_until = time.monotonic()
    async with anyio.create_task_group() as tasks:
        before = await _until_of(database, hangs)
        tasks.start_soon(keeper.run)
        await hanging.given_up.wait()
        assert await _until_of(database, hangs) == before
        assert going.untouched
        tasks.cancel_scope.cancel()


async def test_the_end_of_an_earlier_run_does_not_stop_the_heartbeats_of_the_next(database: Database) -> None:
    """A job that was handed back may be claimed again by the same worker before the first run has quite gone."""
    first = await running(database)
    keeper = LeaseKeeper(database, 3)
    earlier = _holding(keeper, first)
    assert await put_back(database, first.lease, 2, NextReason.RELEASED, AttemptOutcome.RELEASED, counted=False)
    second = await claim_one(database, first.kind)
    later = _holding(keeper, second)
    keeper.release(earlier)
    async with anyio.create_task_group() as tasks:
        before = await _until_of(database, second)
        tasks.start_soon(keeper.run)
        await until(lambda: _moved(database, second, before))
        assert later.untouched
        tasks.cancel_scope.cancel()


async def test_what_the_heartbeats_die_of_ends_the_keeper(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of our own must end the worker loudly, in whatever thread it rose."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(keeping, "heartbeat", broken)
    keeper = LeaseKeeper(database, 3)
    _holding(keeper, await running(database))
    with pytest.RaisesGroup(ZeroDivisionError):
        await keeper.run()
