"""A checkpoint is kept with what was said before it, under the lease, and handed to the next attempt."""

from __future__ import annotations

import anyio
import orjson
import pytest

from schema.database import Database
from schema.runs import Ask, claim, store_checkpoint
from tests.support.jobs import check_log, expire, job_row, running
from tests.support.runs import a_run, serving
from worker.handlers.kind import Json, Repeat, RunContext
from worker.log_writer import LeaseLost
from worker.run import Stop

pytestmark = pytest.mark.anyio


async def test_the_next_attempt_gets_it_and_its_reader_keeps_the_text_up_to_it(database: Database) -> None:
    async def two_steps(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("kept ")
        await run.store_checkpoint({"step": 1, "odd": "a\x00b"})
        await run.emit("void ")
        holder.stop(Stop.HAND_BACK)
        await anyio.sleep_forever()
        return None

    async with serving(database) as services:
        holder = await a_run(services, two_steps, repeat=Repeat.CHECKPOINT)
        await holder.execute()
    row = await job_row(database, holder.lease.job_id)
    assert (row["status"], row["resumes_after"]) == ("queued", 3)
    (again,) = (await claim(database, Ask("tester", [row["kind"]], [], 1, 60))).runs
    assert again.checkpoint == {"step": 1, "odd": "a\ufffdb"}
    event = (await check_log(database, holder.lease.job_id))[-1]
    assert orjson.loads(event.data) == {"attempt": 2, "resumes_after": 3, "reason": "released"}


async def test_a_stale_holder_stores_none(database: Database) -> None:
    claimed = await running(database)
    assert await store_checkpoint(database, claimed.lease, claimed.last_seq, 1)
    assert not await store_checkpoint(database, claimed.lease, claimed.last_seq - 1, 2), "the log is elsewhere"
    await database.execute("UPDATE outlive.job_leases SET run_token = gen_random_uuid()")
    assert not await store_checkpoint(database, claimed.lease, claimed.last_seq, 3)
    stored = await database.fetchval("SELECT checkpoint FROM outlive.job_contents")
    assert orjson.loads(stored) == 1


async def test_a_run_that_lost_its_lease_is_told(database: Database) -> None:
    async def late(run: RunContext, _: dict[str, Json]) -> Json:
        await database.execute("DELETE FROM outlive.job_leases")
        with pytest.raises(LeaseLost):
            await run.store_checkpoint(1)
        told.append(True)
        raise LeaseLost

    told: list[bool] = []
    async with serving(database) as services:
        run = await a_run(services, late)
        await run.execute()
    assert told


async def test_step_keys_are_the_same_in_every_attempt(database: Database) -> None:
    keys: list[str] = []

    async def step(run: RunContext, _: dict[str, Json]) -> Json:
        keys.append(run.step_key("pay"))
        return None

    async with serving(database) as services:
        run = await a_run(services, step)
        await run.execute()
    assert keys == [f"{run.lease.job_id}:pay"]
    await expire(database, run.lease.job_id)
