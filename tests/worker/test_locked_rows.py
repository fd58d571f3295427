"""Somebody holds one row by hand: its own run waits, the worker's other runs do not, and nothing is lost by it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from uuid import UUID

import anyio
import pytest

from schema import database as pool
from schema.database import Database
from schema.limits import set_limit
from tests.support.jobs import attempt_rows, check_log, job_row, lease_row, locked, opened
from tests.support.runs import a_run, serving
from tests.support.waiting import until
from worker import ending
from worker.handlers.kind import Json, RunContext

pytestmark = pytest.mark.anyio

LEASE_S = 6.0
# As long is the lock held, and meanwhile the runs beside the locked one have come to their ends.
HALF_A_LEASE_S = LEASE_S / 2
LEASE = "SELECT 1 FROM outlive.job_leases WHERE job_id = $1 FOR UPDATE"
JOB = "SELECT 1 FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE"


async def _speaks(run: RunContext, _: dict[str, Json]) -> Json:
    await run.emit("some text")
    await run.store_checkpoint(1)
    return {"text": "some text"}


async def _ends_at_once(run: RunContext, _: dict[str, Json]) -> Json:
    return {"text": ""}


async def _succeeded(database: Database, job_id: UUID) -> bool:
    return bool((await job_row(database, job_id))["status"] == "succeeded")


@pytest.mark.parametrize("lock", [LEASE, JOB])
@pytest.mark.parametrize("handler", [_speaks, _ends_at_once])
async def test_a_row_that_is_locked_for_half_a_lease_kills_no_run_and_delays_no_other(
    database: Database, database_url: str, lock: str, handler: object
) -> None:
    """Neither what the others say nor their ends, which are committed in groups with that of the locked one."""
    await set_limit(database, "global", 100)
    async with serving(database, LEASE_S) as services:
        stuck = await a_run(services, handler)  # type: ignore[arg-type]
        others = [await a_run(services, _speaks) for _ in range(10)]
        async with anyio.create_task_group() as tasks:
            async with locked(database_url, lock, stuck.lease.job_id):
                released_at = anyio.current_time() + HALF_A_LEASE_S
                tasks.start_soon(stuck.execute)
                with anyio.fail_after(HALF_A_LEASE_S):
                    async with anyio.create_task_group() as beside:
                        for run in others:
                            beside.start_soon(run.execute)
                for run in others:
                    assert await _succeeded(database, run.lease.job_id)
                await anyio.sleep_until(released_at)
                assert not await _succeeded(database, stuck.lease.job_id)
            with anyio.fail_after(LEASE_S):
                await until(lambda: _succeeded(database, stuck.lease.job_id))
        for run in (stuck, *others):
            await check_log(database, run.lease.job_id)
            assert len(await attempt_rows(database, run.lease.job_id)) == 1
    assert await database.fetchval("SELECT count(*) FROM outlive.permits WHERE holder IS NOT NULL") == 0


async def test_a_run_whose_lease_row_stays_locked_is_given_up_in_time_and_no_other(
    database: Database, database_url: str
) -> None:
    """Not known is not lost, but after a whole lease somebody else may have it."""
    lease_s = 1.5

    async def waits(run: RunContext, _: dict[str, Json]) -> Json:
        await anyio.sleep_forever()
        return None

    async with serving(database, lease_s) as services, anyio.create_task_group() as tasks:
        stuck, free = await a_run(services, waits), await a_run(services, waits)
        for run in (stuck, free):
            tasks.start_soon(run.execute)
        async with AsyncExitStack() as holding:
            await holding.enter_async_context(locked(database_url, LEASE, stuck.lease.job_id))
            row = await lease_row(database, stuck.lease.job_id)
            assert row is not None
            await until(lambda: stuck._is_ending, lease_s)
            assert datetime.now(UTC) < row["lease_until"]
            assert not free._is_ending
        assert (await lease_row(database, free.lease.job_id)) is not None
        tasks.cancel_scope.cancel()


async def test_a_result_that_comes_a_millisecond_before_the_time_limit_is_saved_though_its_row_is_locked(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locked for longer than a statement waits, so that saving has to be tried again after the limit."""
    monkeypatch.setitem(pool._SESSION, "lock_timeout", "100ms")
    tried: list[float] = []
    save_once = ending._save_once

    async def counted(*values: object) -> None:
        tried.append(anyio.current_time())
        await save_once(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(ending, "_save_once", counted)
    limit_s = 1

    async def just_in_time(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("in time")
        await anyio.sleep_until(begun_at + limit_s - 0.001)
        return {"text": "in time"}

    async with opened(database_url) as ours, serving(ours) as services, anyio.create_task_group() as tasks:
        run = await a_run(services, just_in_time, time_limit_s=limit_s)
        begun_at = anyio.current_time()
        async with locked(database_url, JOB, run.lease.job_id):
            tasks.start_soon(run.execute)
            await until(lambda: len(tried) > 2)
    assert tried[-1] > begun_at + limit_s
    assert await _succeeded(database, run.lease.job_id)
    assert [event.kind for event in await check_log(database, run.lease.job_id)][2:] == ["chunk", "succeeded"]
