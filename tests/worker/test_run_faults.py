"""A run on bad days of PostgreSQL: rows that stay locked, answers that do not come."""

from __future__ import annotations

import anyio
import pytest
import stamina

from schema import database as pool
from schema.database import Database
from tests.support.answers import answers_of
from tests.support.jobs import call_rows, check_log, job_row, locked, opened
from tests.support.proxy import proxy_to
from tests.support.runs import Scripted, a_run, calls_once, serving
from tests.support.waiting import until
from worker import appender as appending
from worker import caller
from worker.handlers.kind import Json, RunContext
from worker.providers.provider import Receipt

pytestmark = pytest.mark.anyio


async def test_a_call_s_row_that_stays_locked_costs_time_and_nothing_else(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a statement waits: the handler must not hear of it as an error of its own."""
    monkeypatch.setitem(pool._SESSION, "lock_timeout", "30ms")
    monkeypatch.setattr(appending, "AWAY_SECONDS", 0.01)

    async def hold(_: Receipt) -> None:
        await holding.__aenter__()

    lock = "SELECT 1 FROM outlive.provider_calls FOR UPDATE"
    holding = locked(database_url, lock)
    async with opened(database_url) as ours, serving(ours) as services, anyio.create_task_group() as tasks:
        run = await a_run(services, calls_once, Scripted(within=hold))
        tasks.start_soon(run.execute)
        refused = "SELECT xact_rollback > 2 FROM pg_stat_database WHERE datname = current_database()"
        await until(lambda: database.fetchval(refused))
        await holding.__aexit__(None, None, None)
    assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"
    (call,) = await call_rows(database, run.lease.job_id)
    assert call["outcome"] == "succeeded"


async def test_a_postgresql_that_is_away_for_long_costs_no_finished_call(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a stopped run would wait: a run that nobody stopped waits on, and keeps its result."""
    monkeypatch.setattr(caller, "CLOSE_SECONDS", 0.05)
    away = anyio.Event()

    async def cut_off(_: Receipt) -> None:
        proxy.freeze()
        away.set()

    async with proxy_to(database_url) as proxy, opened(proxy.url) as far, serving(far) as services:
        run = await a_run(services, calls_once, Scripted(within=cut_off), seen_by=database)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.execute)
            await away.wait()
            await anyio.sleep(0.3)  # the time itself is the thing: six times what a stopped run waits
            proxy.thaw()
    assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"
    (call,) = await call_rows(database, run.lease.job_id)
    assert call["outcome"] == "succeeded"
    await check_log(database, run.lease.job_id)


async def test_a_stopped_run_whose_last_commit_is_not_known_loses_no_event_silently(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closing of its call is committed and the answer never comes: what it says next must not take that place."""
    monkeypatch.setattr(caller, "CLOSE_SECONDS", 0.05)
    run_scope = anyio.CancelScope()

    async def stop_here(_: Receipt) -> None:
        await services.appender.flush(run._writer)
        proxy.hold()
        run_scope.cancel()
        await anyio.lowlevel.checkpoint()

    async def stubborn(run: RunContext, _: dict[str, Json]) -> Json:
        with run_scope:
            await calls_once(run, {})
        proxy.let_go()
        await run.emit_data("after", 1)
        return None

    async with answers_of(database_url) as proxy, opened(proxy.url) as far, serving(far) as services:
        run = await a_run(services, stubborn, Scripted(within=stop_here), seen_by=database)
        await run.execute()
    events = await check_log(database, run.lease.job_id)
    row = await job_row(database, run.lease.job_id)
    assert row["status"] == "failed" or any(event.kind == "data" for event in events)
    assert all(call["outcome"] != "running" for call in await call_rows(database, run.lease.job_id))


async def test_a_run_ends_once_however_often_the_answer_is_lost(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "AWAY_SECONDS", 0.001)

    async def text(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("text")
        return {"text": "text"}

    # Without the waits between two tries.
    with stamina.set_testing(True, attempts=1000):
        async with answers_of(database_url) as proxy, opened(proxy.url) as far, serving(far) as services:
            for _ in range(6):
                run = await a_run(services, text, seen_by=database)
                proxy.share = 0.2
                await run.execute()
                proxy.share = 0.0
                assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"
                assert len(await check_log(database, run.lease.job_id)) == 4
    assert proxy.cuts > 2
