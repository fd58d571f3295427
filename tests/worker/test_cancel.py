"""A cancel is never lost: what it answered and what the job became agree, whatever raced."""

from __future__ import annotations

import anyio
import orjson
import pytest

from schema.database import Database
from schema.hints import HintSender
from schema.jobs import Cancel, JobStatus, Reach, cancel_job
from tests.support.evenly import Evenly
from tests.support.jobs import attempt_rows, call_rows, check_log, expire, job_row, queued, running
from tests.support.runs import Scripted, a_run, calls_once, serving
from worker.handlers.kind import Json, RunContext
from worker.providers.provider import Receipt
from worker.reaper import Reaper
from worker.run import Run

pytestmark = pytest.mark.anyio

EVERYBODY = Reach(None)


async def test_a_waiting_job_ends_at_once(database: Database) -> None:
    job_id = await queued(database)
    assert await cancel_job(database, EVERYBODY, job_id) == Cancel(JobStatus.QUEUED, 3)
    events = await check_log(database, job_id)
    assert [event.kind for event in events] == ["status", "cancel_requested", "cancelled"]
    assert orjson.loads(events[-1].data) == {"status": "cancelled", "attempt": 0}
    again = await cancel_job(database, EVERYBODY, job_id)
    assert again is not None
    assert (again.was, again.last_seq) == (JobStatus.CANCELLED, None)


async def test_a_running_one_says_the_wish_closes_its_call_and_ends(database: Database) -> None:
    asked = anyio.Event()

    async def hang(_: Receipt) -> None:
        asked.set()
        await anyio.sleep_forever()

    async with serving(database) as services:
        run = await a_run(services, calls_once, Scripted(within=hang))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.execute)
            await asked.wait()
            await cancel_job(database, EVERYBODY, run.lease.job_id)
            run.cancel()
    kinds = [event.kind for event in await check_log(database, run.lease.job_id)]
    assert kinds == ["status", "attempt", "chunk", "cancel_requested", "external", "cancelled"]
    (call,) = await call_rows(database, run.lease.job_id)
    assert (call["outcome"], call["cost_is_lower_bound"]) == ("cancel_unconfirmed", True)
    (attempt,) = await attempt_rows(database, run.lease.job_id)
    assert attempt["outcome"] == "cancelled"


async def test_a_result_that_comes_after_the_wish_is_refused(database: Database) -> None:
    async def wished_for_meanwhile(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("all of it")
        await cancel_job(database, EVERYBODY, run.job_id)
        return {"text": "all of it"}

    async with serving(database) as services:
        run = await a_run(services, wished_for_meanwhile)
        await run.execute()
    events = await check_log(database, run.lease.job_id)
    assert [event.kind for event in events][-2:] == ["cancel_requested", "cancelled"]
    assert (await job_row(database, run.lease.job_id))["status"] == "cancelled"


async def test_the_holder_is_gone_and_the_reaper_says_both(database: Database) -> None:
    claimed = await running(database)
    await cancel_job(database, EVERYBODY, claimed.lease.job_id)
    await expire(database, claimed.lease.job_id)
    await Reaper(database, HintSender(database))._look()
    events = await check_log(database, claimed.lease.job_id)
    assert [event.kind for event in events] == ["status", "attempt", "cancel_requested", "cancelled"]
    (attempt,) = await attempt_rows(database, claimed.lease.job_id)
    assert attempt["outcome"] == "lost"


@pytest.mark.timeout(240)
async def test_five_hundred_races_with_the_end_agree(database: Database) -> None:
    """What the cancel met decides: an end that came first stands, any other job ends cancelled."""

    async def ends(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("x")
        return {"text": "x"}

    evenly = Evenly()

    async def race(run: Run) -> None:
        met: list[Cancel | None] = []

        async def wish() -> None:
            await evenly.wait()
            met.append(await cancel_job(database, EVERYBODY, run.lease.job_id))

        async with anyio.create_task_group() as both:
            both.start_soon(run.execute)
            both.start_soon(wish)
        cancel = met[0]
        assert cancel is not None
        came_first = cancel.was is JobStatus.SUCCEEDED
        evenly.won(second=not came_first)
        status = (await job_row(database, run.lease.job_id))["status"]
        assert status == ("succeeded" if came_first else "cancelled")
        await check_log(database, run.lease.job_id)

    async with serving(database) as services:
        for _ in range(50):
            runs = [await a_run(services, ends) for _ in range(10)]
            async with anyio.create_task_group() as races:
                for run in runs:
                    races.start_soon(race, run)
    print(f"{evenly.wins[True]} wishes came first, {evenly.wins[False]} ends")
    assert min(evenly.wins.values()) > 50
