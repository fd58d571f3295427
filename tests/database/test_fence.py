"""Invariant 2: one live run token a job, and every write of a run goes through it under the lease row's lock.

Each race runs twice: with our statement, and with the same one without its lock, which has to fail or the test
proves nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from schema.calls import CallStart, open_call
from schema.database import Database
from schema.endings import Ending, end_run
from schema.events import Append, append
from schema.runs import AttemptOutcome, ClaimedRun, Failure, NextReason, heartbeat, put_back
from schema.statements import statement
from tests.support.jobs import (
    call_rows,
    check_log,
    claim_one,
    connected,
    job_row,
    lease_row,
    locked,
    log_of,
    opened,
    queued,
    running,
    says,
    waits_for_a_lock,
)
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

# What design.md rules out: the fence is read without a lock, and the holder's count is trusted.
_UNFENCED = """
    INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data)
    SELECT job_id, $3::integer + 1, 'chunk', attempt, $4 FROM outlive.job_leases WHERE job_id = $1 AND run_token = $2
"""
_FAILURE = Failure("test", "permanent", "A test.")


async def _append_on(connection: asyncpg.Connection, one: Append) -> set[object]:
    return set(await append(connection, [one]))


async def _unfenced_on(connection: asyncpg.Connection, one: Append) -> None:
    await connection.execute(_UNFENCED, one.job_id, one.run_token, one.base_seq, one.drafts[0].data)


async def _take_over(database: Database, run: ClaimedRun) -> ClaimedRun:
    """What the reaper and the next worker do."""
    lease = await lease_row(database, run.lease.job_id)
    assert lease is not None
    outcome = AttemptOutcome.LOST
    assert await put_back(database, run.lease, lease["last_seq"], NextReason.LEASE_EXPIRED, outcome)
    return await claim_one(database, run.kind)


@asynccontextmanager
async def _open_transaction(url: str) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.transaction.Transaction]]:
    async with connected(url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction


async def test_a_takeover_waits_for_a_flush_that_is_not_committed(database: Database, database_url: str) -> None:
    """Flush first: the new owner counts on from it, so nothing of the old run comes behind the takeover."""
    run = await running(database)
    taken: list[ClaimedRun] = []

    async def take_over() -> None:
        taken.append(await _take_over_when_free(database, run))

    async with _open_transaction(database_url) as (old, transaction):
        assert await _append_on(old, says(run, 2, "old")) == {run.lease.job_id}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_over)
            await until(lambda: waits_for_a_lock(database, "DELETE FROM outlive.job_leases"))
            await transaction.commit()
    assert await append(database, [says(taken[0], taken[0].last_seq, "new")]) == {run.lease.job_id}
    assert [event.data for event in await check_log(database, run.lease.job_id)][2:] == ["old", _attempt(2), "new"]


async def _take_over_when_free(database: Database, run: ClaimedRun) -> ClaimedRun:
    """With the last seq that the reaper saw before the flush: refused once, right the second time."""
    outcome = AttemptOutcome.LOST
    assert not await put_back(database, run.lease, 2, NextReason.LEASE_EXPIRED, outcome)
    return await _take_over(database, run)


def _attempt(number: int) -> str:
    return f'{{"reason": "lease_expired", "attempt": {number}, "resumes_after": 0}}'


async def test_without_the_lock_a_takeover_does_not_wait(database: Database, database_url: str) -> None:
    run = await running(database)
    async with _open_transaction(database_url) as (old, transaction):
        await _unfenced_on(old, says(run, 3, "stale"))
        await _take_over(database, run)
        await transaction.commit()
    assert "stale" in [event.data for event in await log_of(database, run.lease.job_id)]


async def test_a_flush_that_meets_a_takeover_writes_nothing(database: Database, database_url: str) -> None:
    """Takeover first, not committed: the stale flush neither waits nor writes, and the owner meets no 23505."""
    run = await running(database)
    async with _open_transaction(database_url) as (reaper, transaction):
        assert await put_back(reaper, run.lease, 2, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
        with anyio.fail_after(1):
            assert await append(database, [says(run, 2, "stale")]) == set()
        await transaction.commit()
    owner = await claim_one(database, run.kind)
    assert await append(database, [says(run, 2, "stale")]) == set()
    assert await append(database, [says(owner, owner.last_seq, "new")]) == {run.lease.job_id}
    assert "stale" not in [event.data for event in await check_log(database, run.lease.job_id)]


async def test_without_the_lock_the_new_owner_meets_a_stale_row(database: Database, database_url: str) -> None:
    run = await running(database)
    async with _open_transaction(database_url) as (reaper, transaction):
        assert await put_back(reaper, run.lease, 2, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
        async with connected(database_url) as old:
            await _unfenced_on(old, says(run, 2, "stale"))
        await transaction.commit()
    with pytest.raises(Exception, match="23505"):
        await claim_one(database, run.kind)


async def test_a_takeover_inside_of_the_flush_s_own_statement(database: Database, database_url: str) -> None:
    """The window of evidence: the flush has its snapshot and waits; the takeover commits; the flush goes on.

    The flush is held up in reading its own arguments, after its snapshot was taken, by an advisory lock.
    """
    run = await running(database)
    text = statement("append_events").replace(
        "SELECT l.job_id, b.events FROM outlive.job_leases l JOIN batch b USING (job_id)",
        "SELECT l.job_id, b.events FROM (SELECT pg_advisory_lock(77)) AS held_up, outlive.job_leases l"
        " JOIN batch b USING (job_id)",
    )
    assert "advisory" in text
    job_id, token = run.lease.job_id, run.lease.run_token
    written: list[object] = []
    async with connected(database_url) as guard, connected(database_url) as old:
        await guard.execute("SELECT pg_advisory_lock(77)")

        async def flush() -> None:
            values = ([job_id], [token], [2], [1], [job_id], [3], ["chunk"], ["stale"])
            written.extend(await old.fetch(text, *values))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flush)
            await until(lambda: waits_for_a_lock(database, "pg_advisory_lock"))
            owner = await _take_over(database, run)
            await guard.execute("SELECT pg_advisory_unlock(77)")
    assert written == []
    assert await append(database, [says(owner, owner.last_seq, "new")]) == {job_id}
    assert "stale" not in [event.data for event in await check_log(database, job_id)]


async def test_every_write_of_a_stale_run_is_refused(database: Database) -> None:
    run = await running(database)
    owner = await _take_over(database, run)
    old, seq = run.lease, owner.last_seq
    assert await append(database, [says(run, seq, "stale")]) == set()
    assert not await open_call(database, old, CallStart(1, "p", None))
    assert not await end_run(database, Ending.succeeded(old, seq, "stale"))
    assert not await end_run(database, Ending.failed(old, seq, _FAILURE, AttemptOutcome.FAILED))
    assert not await put_back(database, old, seq, NextReason.RELEASED, AttemptOutcome.RELEASED)
    beat = (await heartbeat(database, [old], 60))[old.job_id]
    assert beat.lost
    assert not beat.renewed
    assert (await job_row(database, old.job_id))["status"] == "running"
    assert await call_rows(database, old.job_id) == []
    assert len(await check_log(database, old.job_id)) == seq


async def test_nothing_is_written_after_the_end(database: Database) -> None:
    """Terminal is for ever, for the very run that wrote it too."""
    run = await running(database)
    assert await end_run(database, Ending.succeeded(run.lease, 2, "done"))
    assert await append(database, [says(run, 3, "late")]) == set()
    assert not await open_call(database, run.lease, CallStart(1, "p", None))
    assert not await end_run(database, Ending.failed(run.lease, 3, _FAILURE, AttemptOutcome.FAILED))
    assert not await put_back(database, run.lease, 3, NextReason.RELEASED, AttemptOutcome.RELEASED)
    assert len(await check_log(database, run.lease.job_id)) == 3


@pytest.mark.parametrize("base_seq", [0, 1, 3, 9])
async def test_a_run_that_counts_wrong_writes_nothing(database: Database, base_seq: int) -> None:
    run = await running(database)
    assert await append(database, [says(run, base_seq, "x")]) == set()
    assert not await end_run(database, Ending.succeeded(run.lease, base_seq, "x"))
    assert len(await check_log(database, run.lease.job_id)) == 2


async def test_of_two_runs_in_one_flush_only_the_stale_one_is_missing(database: Database) -> None:
    good, stale = await running(database), await running(database)
    await _take_over(database, stale)
    assert await append(database, [says(good, 2, "a", "b"), says(stale, 2, "c")]) == {good.lease.job_id}
    assert [event.data for event in await check_log(database, good.lease.job_id)][2:] == ["a", "b"]
    assert len(await check_log(database, stale.lease.job_id)) == 3


async def test_a_locked_lease_delays_no_other_run_of_the_flush(database: Database, database_url: str) -> None:
    free, held = await running(database), await running(database)
    lock = "SELECT 1 FROM outlive.job_leases WHERE job_id = $1 FOR UPDATE"
    async with locked(database_url, lock, held.lease.job_id):
        with anyio.fail_after(1):
            assert await append(database, [says(free, 2, "a"), says(held, 2, "b")]) == {free.lease.job_id}
    assert await append(database, [says(held, 2, "b")]) == {held.lease.job_id}
    assert [event.data for event in await check_log(database, held.lease.job_id)][2:] == ["b"]


async def test_one_append_in_two_flushes_is_written_once(database: Database) -> None:
    """A flush whose answer was lost is sent again: the sequence is compared, so it writes nothing."""
    run = await running(database)
    assert await append(database, [says(run, 2, "a", "b")]) == {run.lease.job_id}
    assert await append(database, [says(run, 2, "a", "b")]) == set()
    assert len(await check_log(database, run.lease.job_id)) == 4


async def test_many_appends_at_once_of_one_place_write_one(database: Database) -> None:
    run = await running(database)
    written: list[object] = []

    async def one(text: str) -> None:
        written.extend(await append(database, [says(run, 2, text)]))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, str(number))
    assert len(written) == 1
    assert len(await check_log(database, run.lease.job_id)) == 3


async def test_a_second_end_is_refused_by_the_tables_too(database: Database) -> None:
    """Invariant 4 does not hang on the statements alone: a unique index guards it."""
    run = await running(database)
    assert await end_run(database, Ending.succeeded(run.lease, 2, "done"))
    again = "INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data) VALUES ($1, 4, $2, 1, '{}')"
    for kind in ("succeeded", "failed", "cancelled"):
        with pytest.raises(Exception, match="23505"):
            await database.execute(again, run.lease.job_id, kind)


async def test_the_default_of_the_role_does_not_weaken_the_fence(database_url: str) -> None:
    """Under repeatable read a flush that met a moved lease would raise 40001 instead of coming back empty."""
    async with connected(database_url) as admin:
        name = await admin.fetchval("SELECT current_database()")
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    async with opened(database_url) as database:
        assert await database.fetchval("SHOW transaction_isolation") == "read committed"
        await queued(database)
        run = await claim_one(database)
        assert await append(database, [says(run, 2, "a")]) == {run.lease.job_id}
