"""A job that is handed back does not count, but one that workers hand around without a word comes to an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from schema.database import Database
from schema.jobs import JobStatus
from tests.support.jobs import attempt_rows, check_log, claim_one, job_row, queued, register
from tests.support.runs import serving
from worker.ending import Services
from worker.handlers.kind import Json, Kind, Repeat, RunContext
from worker.run import Run, Stop
from worker.verdicts import IDLE_RELEASES_MOST

pytestmark = pytest.mark.anyio

KIND = "handed-around"


async def _silent(_: RunContext) -> None: ...


async def _speaks(run: RunContext) -> None:
    await run.emit("a word")


async def _stores(run: RunContext) -> None:
    await run.store_checkpoint(1)


async def _handed_back(services: Services, begin: Callable[[RunContext], Awaitable[None]]) -> None:
    """Claimed, begun, and stopped as a worker does that shuts down."""
    begun = anyio.Event()

    async def handler(run: RunContext, _: dict[str, Json]) -> Json:
        await begin(run)
        begun.set()
        await anyio.sleep_forever()
        return None

    claimed = await claim_one(services.database, KIND)
    kind = Kind(KIND, 1, {}, Repeat.SAFE, handler, "none")
    run = Run(services, claimed, kind, None, services.keeper.first_deadline(anyio.current_time()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.execute)
        await begun.wait()
        run.stop(Stop.HAND_BACK)


async def test_after_five_hand_backs_without_a_word_the_next_is_the_end(database: Database) -> None:
    job_id = await queued(database, kind=KIND, max_attempts=1)
    await register(database, KIND, "safe")
    async with serving(database) as services:
        for number in range(IDLE_RELEASES_MOST):
            await _handed_back(services, _silent)
            row = await job_row(database, job_id)
            assert (row["status"], row["attempts"], row["idle_releases"]) == ("queued", 0, number + 1)
        await _handed_back(services, _silent)
    row = await job_row(database, job_id)
    assert (row["status"], row["error_class"], row["error_code"]) == ("failed", "exhausted", "released_too_often")
    await check_log(database, job_id)
    assert {attempt["outcome"] for attempt in await attempt_rows(database, job_id)} == {"released"}


@pytest.mark.parametrize("progress", [_speaks, _stores])
async def test_a_hand_back_after_progress_begins_the_count_anew(
    database: Database, progress: Callable[[RunContext], Awaitable[None]]
) -> None:
    job_id = await queued(database, kind=KIND, max_attempts=1)
    await register(database, KIND, "safe")
    async with serving(database) as services:
        for _ in range(2):
            for _ in range(IDLE_RELEASES_MOST):
                await _handed_back(services, _silent)
            await _handed_back(services, progress)
            assert (await job_row(database, job_id))["idle_releases"] == 0
    row = await job_row(database, job_id)
    assert (row["status"], row["attempts"], row["attempt"]) == (JobStatus.QUEUED, 0, 2 * (IDLE_RELEASES_MOST + 1))
    await check_log(database, job_id)
