"""The reaper: a run whose holder is gone goes back or ends, once, whoever else is at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import anyio
import orjson
import pytest

from schema import database as pool
from schema.calls import CallStart, open_call
from schema.database import Database
from schema.events import append
from schema.hints import HintSender
from schema.runs import ClaimedRun, heartbeat
from tests.support.jobs import (
    attempt_rows,
    call_rows,
    check_log,
    claim_one,
    expire,
    job_row,
    lease_row,
    locked,
    log_of,
    opened,
    queued,
    register,
    running,
    says,
)
from worker.reaper import PAGE, Reaper

pytestmark = pytest.mark.anyio

_SHORT = "50ms"


def _reaper(database: Database) -> Reaper:
    return Reaper(database, HintSender(database))


async def _expired(database: Database, repeat: str = "safe", open_calls: int = 0, **changes: object) -> ClaimedRun:
    run = await running(database, **changes)
    await register(database, run.kind, repeat)
    for number in range(1, open_calls + 1):
        assert await open_call(database, run.lease, CallStart(number, "p", None))
    await expire(database, run.lease.job_id)
    return run


async def _status(database: Database, job_id: UUID) -> str:
    return str((await job_row(database, job_id))["status"])


async def test_an_expired_run_goes_back_and_the_next_attempt_says_why(database: Database) -> None:
    run = await _expired(database)
    assert await append(database, [says(run, 2, "void")]) == {run.lease.job_id}
    await _reaper(database)._look()
    assert await lease_row(database, run.lease.job_id) is None
    assert [(each["outcome"], each["counted"]) for each in await attempt_rows(database, run.lease.job_id)] == [
        ("lost", True)
    ]
    again = await claim_one(database, run.kind)
    assert again.lease.run_token != run.lease.run_token
    last = (await check_log(database, run.lease.job_id))[-1]
    assert orjson.loads(last.data) == {"attempt": 2, "resumes_after": 0, "reason": "lease_expired"}


async def test_a_live_lease_is_left_alone(database: Database) -> None:
    run = await running(database)
    await _reaper(database)._look()
    assert (await heartbeat(database, [run.lease], 60))[run.lease.job_id].renewed


async def test_open_calls_become_unknown_and_the_log_says_so(database: Database) -> None:
    """Invariant 11: what was on the wire is closed, once, as what it is."""
    run = await _expired(database, open_calls=2)
    await _reaper(database)._look()
    assert [call["outcome"] for call in await call_rows(database, run.lease.job_id)] == ["unknown", "unknown"]
    events = await check_log(database, run.lease.job_id)
    assert [(event.kind, orjson.loads(event.data)) for event in events[2:]] == [
        ("external", {"attempt": 1, "call": number, "outcome": "unknown"}) for number in (1, 2)
    ]
    assert await _status(database, run.lease.job_id) == "queued"


async def test_what_is_not_safe_to_repeat_ends_behind_its_external_event(database: Database) -> None:
    run = await _expired(database, "checkpoint", open_calls=1)
    await _reaper(database)._look()
    events = await check_log(database, run.lease.job_id)
    assert [event.kind for event in events[2:]] == ["external", "failed"]
    assert orjson.loads(events[-1].data)["error"]["class"] == "unknown"


async def test_a_kind_that_nobody_registered_is_not_started_twice(database: Database) -> None:
    run = await running(database)
    await expire(database, run.lease.job_id)
    await _reaper(database)._look()
    assert await _status(database, run.lease.job_id) == "failed"


async def test_many_reapers_at_once_reap_each_run_once(database_url: str) -> None:
    async with opened(database_url, 12) as database:
        runs = [await _expired(database, open_calls=1) for _ in range(12)]
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(_reaper(database)._look)
        for run in runs:
            events = await check_log(database, run.lease.job_id)
            assert [event.kind for event in events] == ["status", "attempt", "external"]
            assert await _status(database, run.lease.job_id) == "queued"


async def test_reaper_and_heartbeat_at_once_agree(database_url: str) -> None:
    """Either the lease was renewed and the run goes on, or it was taken and the heartbeat hears of it."""
    async with opened(database_url, 12) as database:
        runs = [await _expired(database) for _ in range(12)]
        async with anyio.create_task_group() as tasks:
            for run in runs:
                tasks.start_soon(heartbeat, database, [run.lease], 60.0)
            tasks.start_soon(_reaper(database)._look)
        beats = await heartbeat(database, [run.lease for run in runs], 60)
        for run in runs:
            status = await _status(database, run.lease.job_id)
            beat = beats[run.lease.job_id]
            assert (status, beat.renewed, beat.lost) in {("running", True, False), ("queued", False, True)}


@pytest.mark.parametrize("table", ["ai_jobs", "job_leases"])
async def test_a_locked_row_is_skipped(database: Database, database_url: str, table: str) -> None:
    """Lock order job, lease: whoever has one of them is about to decide the job's fate himself."""
    run, other = await _expired(database), await _expired(database)
    column = "id" if table == "ai_jobs" else "job_id"
    async with locked(
        database_url, f"SELECT 1 FROM outlive.{table} WHERE {column} = $1 FOR UPDATE", run.lease.job_id
    ):
        with anyio.fail_after(1):
            await _reaper(database)._look()
        assert await _status(database, run.lease.job_id) == "running"
        assert await _status(database, other.lease.job_id) == "queued"


async def test_a_job_that_cannot_be_ended_now_hides_no_other(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is locked for longer than a statement waits; the next one in the page is still looked after."""
    monkeypatch.setitem(pool._SESSION, "lock_timeout", _SHORT)
    async with opened(database_url) as database:
        stuck, other = await _expired(database, "never"), await _expired(database)
        lock = "SELECT 1 FROM outlive.job_contents WHERE job_id = $1 FOR UPDATE"
        async with locked(database_url, lock, stuck.lease.job_id):
            await _reaper(database)._look()
            assert await _status(database, other.lease.job_id) == "queued"
            assert await _status(database, stuck.lease.job_id) == "running"
        await _reaper(database)._look()
        assert await _status(database, stuck.lease.job_id) == "failed"


async def test_a_job_that_can_never_be_ended_hides_no_other_and_stops_no_worker(database: Database) -> None:
    """Its week of the log is gone, so its last event is refused; one bad row is one bad job."""
    stuck, other = await _expired(database, "never"), await _expired(database)
    name = await database.fetchval(
        "SELECT tableoid::regclass::text FROM outlive.job_events WHERE job_id = $1 LIMIT 1", stuck.lease.job_id
    )
    refuse = f"ALTER TABLE {name} ADD CONSTRAINT poison CHECK (job_id <> '{stuck.lease.job_id}' OR kind <> 'failed')"
    await database.execute(refuse)
    await _reaper(database)._look()
    assert await _status(database, other.lease.job_id) == "queued"
    assert await _status(database, stuck.lease.job_id) == "running"


async def test_more_than_a_page_is_looked_at(database: Database, database_url: str) -> None:
    """A page full of locked runs hides nobody behind it."""
    run = await _expired(database)
    tenant = (await job_row(database, run.lease.job_id))["tenant_id"]
    await database.execute(
        "INSERT INTO outlive.ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, status, max_attempts,"
        " last_seq, run_at, started_at) SELECT lpad(n::text, 32, '0')::uuid, $1, n::text,"
        " decode(repeat('00', 32), 'hex'), 'x', 'running', 1, 1, now(), now() FROM generate_series(1, $2) AS n",
        tenant,
        PAGE + 10,
    )
    await database.execute(
        "INSERT INTO outlive.job_leases (job_id, run_token, attempt, worker, lease_until, last_seq)"
        " SELECT id, gen_random_uuid(), 1, 'w', now() - interval '1 s', 1 FROM outlive.ai_jobs WHERE kind = 'x'"
    )
    async with locked(database_url, "SELECT 1 FROM outlive.ai_jobs WHERE kind = 'x' FOR UPDATE"):
        await _reaper(database)._look()
    assert await _status(database, run.lease.job_id) == "queued"


async def test_due_and_late_jobs_are_looked_after(database: Database) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    due, late = await queued(database, run_at=soon), await queued(database, run_at=soon, start_before=soon)
    await database.execute("UPDATE outlive.ai_jobs SET run_at = now() WHERE id = $1", due)
    await database.execute("UPDATE outlive.ai_jobs SET start_before = now() WHERE id = $1", late)
    await _reaper(database)._look()
    assert await _status(database, due) == "queued"
    assert await _status(database, late) == "failed"
    assert [event.kind for event in await log_of(database, late)] == ["status", "failed"]


async def test_a_cancelled_reaper_leaves_no_half_of_a_verdict(database: Database, database_url: str) -> None:
    """It waits for the job's content, and is cancelled there: neither calls nor log were touched."""
    run = await _expired(database, "never", open_calls=1)
    lock = "SELECT 1 FROM outlive.job_contents WHERE job_id = $1 FOR UPDATE"
    async with locked(database_url, lock, run.lease.job_id), anyio.create_task_group() as tasks:
        tasks.start_soon(_reaper(database)._look)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert [call["outcome"] for call in await call_rows(database, run.lease.job_id)] == ["running"]
    assert len(await check_log(database, run.lease.job_id)) == 2
