"""PostgreSQL goes away and comes back under running jobs and their readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from uuid import UUID

import anyio
import pytest

from tests.faults.follower import Follower
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.truth import expect_same, expect_succeeded
from tests.support.api import Job
from tests.support.databases import make_migrated
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import log_of
from tests.support.postgres import DurablePostgres
from tests.support.provider_scripts import Exchange
from tests.support.servers import start_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

JOBS = 20
PIECES = 30


class Choir:
    """A model with a voice of its own for each job, which is known by its message."""

    def __init__(self) -> None:
        self.voices = [Pieces([f"{job}.{number} " for number in range(PIECES)]) for job in range(JOBS)]

    async def script(self, exchange: Exchange) -> None:
        number = int(exchange.request.json["messages"][0]["content"])
        await self.voices[number].script(exchange)

    def release(self, times: int) -> None:
        for voice in self.voices:
            voice.release(times)


@asynccontextmanager
async def singing(house: House, choir: Choir) -> AsyncIterator[tuple[list[Job], list[Follower]]]:
    """Twenty jobs and a reader for each, who asks for more as it reads; the block ends when all is read."""
    jobs = [await house.api.create_soon("chat", says(str(number))) for number in range(JOBS)]
    followers = [
        Follower(house.api.events_url(job), on_event=lambda _, voice=voice: voice.release())  # type: ignore[misc]
        for job, voice in zip(jobs, choir.voices, strict=True)
    ]
    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for follower in followers:
                tasks.start_soon(follower.run)
            yield jobs, followers


@pytest.mark.parametrize("how", ["immediate", "fast"])
async def test_streams_and_jobs_outlive_a_restart_of_postgres(
    durable_postgres: DurablePostgres, tmp_path: Path, how: Literal["immediate", "fast"]
) -> None:
    """Immediate is a crash: what was not on the disk is gone, so nobody may have seen it."""
    url = await make_migrated(durable_postgres.url)
    choir = Choir()
    async with FakeProvider() as fake, open_house(url) as house:
        fake.scripts["m1"] = choir.script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(url, {"OUTLIVE_CONCURRENCY": str(JOBS)}, providers=providers):
            async with singing(house, choir) as (jobs, followers):
                await until(lambda: all(follower.reader.text for follower in followers), 30)
                await durable_postgres.stop(how)
                # Said while there is nothing that could keep it.
                choir.release(5)
                await durable_postgres.start_again()
                await _expect_shown_is_kept(house, jobs, followers)
            for job, follower in zip(jobs, followers, strict=True):
                records = await expect_succeeded(house.database, house.api, job, follower)
                assert records.outcomes == [("succeeded", True)]
            assert len(fake.requests) == JOBS


async def _expect_shown_is_kept(house: House, jobs: list[Job], followers: list[Follower]) -> None:
    shown = [list(follower.seen) for follower in followers]
    assert any(not follower.reader.finished for follower in followers)
    for job, seen in zip(jobs, shown, strict=True):
        expect_same(seen, await log_of(house.database, UUID(job["job_id"])))
