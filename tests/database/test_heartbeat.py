"""Heartbeats: renewed, lost, or not known, which is neither; and they never wait."""

from __future__ import annotations

import anyio
import pytest

from schema.database import Database
from schema.endings import Ending, end_run
from schema.runs import AttemptOutcome, Beat, NextReason, heartbeat, lock_expired, put_back
from tests.support.jobs import expire, lease_row, locked, running

pytestmark = pytest.mark.anyio

_RENEWED, _LOST, _NOT_KNOWN = Beat(True, False), Beat(False, True), Beat(False, False)
_LOCK = "SELECT 1 FROM outlive.job_leases WHERE job_id = $1 FOR UPDATE"


async def test_each_run_is_told_by_itself(database: Database, database_url: str) -> None:
    """One statement for a whole worker; a locked row is skipped, and is not lost."""
    good, ended, taken, held = [await running(database) for _ in range(4)]
    assert await end_run(database, Ending.succeeded(ended.lease, 2, "x"))
    assert await put_back(database, taken.lease, 2, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
    leases = [run.lease for run in (good, ended, taken, held)]
    async with locked(database_url, _LOCK, held.lease.job_id):
        with anyio.fail_after(1):
            beats = await heartbeat(database, leases, 60)
    assert [beats[lease.job_id] for lease in leases] == [_RENEWED, _LOST, _LOST, _NOT_KNOWN]
    assert await heartbeat(database, [held.lease], 60) == {held.lease.job_id: _RENEWED}


async def test_a_heartbeat_moves_the_end_of_the_lease(database: Database) -> None:
    run = await running(database)
    await expire(database, run.lease.job_id)
    await heartbeat(database, [run.lease], 1000)
    left = "SELECT lease_until - clock_timestamp() > interval '990 s' FROM outlive.job_leases WHERE job_id = $1"
    assert await database.fetchval(left, run.lease.job_id)


async def test_a_heartbeat_of_a_stale_token_prolongs_nothing(database: Database) -> None:
    run = await running(database)
    before = await lease_row(database, run.lease.job_id)
    await database.execute("UPDATE outlive.job_leases SET run_token = gen_random_uuid()")
    assert await heartbeat(database, [run.lease], 1000) == {run.lease.job_id: _LOST}
    after = await lease_row(database, run.lease.job_id)
    assert before is not None
    assert after is not None
    assert before["lease_until"] == after["lease_until"]


async def test_a_takeover_in_progress_is_not_known_to_the_heartbeat(database: Database, database_url: str) -> None:
    """The reaper has the row and has not committed: it may still roll back."""
    run = await running(database)
    async with locked(database_url, "DELETE FROM outlive.job_leases WHERE job_id = $1", run.lease.job_id):
        assert await heartbeat(database, [run.lease], 60) == {run.lease.job_id: _NOT_KNOWN}
    assert await heartbeat(database, [run.lease], 60) == {run.lease.job_id: _RENEWED}


async def test_a_lease_that_was_renewed_in_time_is_not_taken(database: Database, database_url: str) -> None:
    """The reaper saw it expired, without a lock; under the locks it looks again."""
    run = await running(database)
    await expire(database, run.lease.job_id)
    renew = "UPDATE outlive.job_leases SET lease_until = clock_timestamp() + interval '60 s' WHERE job_id = $1"
    async with locked(database_url, renew, run.lease.job_id):
        with anyio.fail_after(1):
            assert await lock_expired(database, run.lease.job_id, run.lease.run_token) is None
    assert await lock_expired(database, run.lease.job_id, run.lease.run_token) is not None
    await heartbeat(database, [run.lease], 60)
    assert await lock_expired(database, run.lease.job_id, run.lease.run_token) is None


async def test_an_expired_lease_of_another_token_is_not_taken(database: Database) -> None:
    run, other = await running(database), await running(database)
    await expire(database, run.lease.job_id)
    assert await lock_expired(database, run.lease.job_id, other.lease.run_token) is None
