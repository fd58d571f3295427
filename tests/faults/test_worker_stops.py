"""A worker that is told to stop takes nothing more and is gone within its grace, whatever hangs in it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from uuid import UUID

import anyio
import pytest

from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.test_dying_workers import odd_worker
from tests.support.api import Job
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import expire, job_row, opened, register, running
from tests.support.provider_scripts import failing
from tests.support.proxy import proxy_to
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Three events: it waits, it is begun, it has said something.
SPEAKS_AT = 3


async def speaks(house: House, job: Job) -> None:
    async def has_spoken() -> bool:
        return bool((await house.api.get(job["job_id"]))["last_event_id"] >= SPEAKS_AT)

    await until(has_spoken)


async def test_nothing_is_taken_any_more_and_what_is_never_safe_ends(database_url: str, tmp_path: Path) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(database_url, tmp_path, providers, {"OUTLIVE_GRACE_SECONDS": "8"}) as worker:
            job = await house.api.create_soon("once", {"waits": "before"}, model="m1", provider="fake")
            await speaks(house, job)
            worker.send(signal.SIGTERM)
            await worker.logs("worker stops")
            late = [await house.api.create("note", {}) for _ in range(3)]
            assert await worker.wait() == 0
        assert [(await house.api.get(each["job_id"]))["status"] for each in late] == ["queued"] * 3
        ended = await house.api.get(job["job_id"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", "interrupted")


async def test_a_second_signal_does_not_wait(database_url: str, tmp_path: Path) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house:
        fake.scripts["m1"] = Pieces(["one"]).script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(database_url, tmp_path, providers, {"OUTLIVE_GRACE_SECONDS": "300"}) as worker:
            job = await house.api.create_soon("once", {}, model="m1", provider="fake")
            await fake.arrived(1)
            worker.send(signal.SIGTERM)
            await worker.logs("worker stops")
            worker.send(signal.SIGTERM)
            assert await worker.wait(60) == 0
        ended = await house.api.get(job["job_id"])
        assert (ended["status"], ended["error"]["class"]) == ("failed", "unknown")


async def test_a_handler_that_computes_in_the_loop_does_not_keep_it(database_url: str, tmp_path: Path) -> None:
    """It holds up the loop's own timers, too: the process left when the handler had computed enough."""
    async with open_house(database_url) as house:
        async with odd_worker(database_url, tmp_path, None, {"OUTLIVE_GRACE_SECONDS": "3"}) as worker:
            job = await house.api.create_soon("busy", {"seconds": 100})
            await speaks(house, job)
            told_at = time.monotonic()
            assert await worker.stop(60) == 1
            assert time.monotonic() - told_at < 50
        await expire(house.database, UUID(job["job_id"]))
        async with odd_worker(database_url, tmp_path):
            ended = await house.api.ended(job["job_id"])
        assert (ended["status"], ended["error"]["class"]) == ("failed", "unknown")


async def test_a_postgresql_that_answers_nothing_does_not_keep_it(database_url: str, tmp_path: Path) -> None:
    more = {"OUTLIVE_GRACE_SECONDS": "6", "OUTLIVE_LEASE_SECONDS": "60"}
    async with FakeProvider() as fake, open_house(database_url) as house, proxy_to(database_url) as proxy:
        fake.scripts["m1"] = Pieces(["one", "two"]).script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(proxy.url, tmp_path, providers, more) as worker:
            await house.api.create_soon("chat", says("go on"))
            await fake.arrived(1)
            proxy.freeze()
            assert await worker.stop(60) in {0, 1}
            proxy.thaw()


async def test_one_slot_is_enough_for_what_waits_and_the_reaper_needs_none(database_url: str, tmp_path: Path) -> None:
    more = {"OUTLIVE_CONCURRENCY": "1", "OUTLIVE_LEASE_SECONDS": "30"}
    async with FakeProvider() as fake, open_house(database_url) as house, opened(database_url) as database:
        fake.scripts["m1"] = failing(429, retry_after="600")
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(database_url, tmp_path, providers, more):
            throttled = await house.api.create_soon("chat", says("go on"), provider="fake", model="m1")

            async def status_of(job: Job) -> str:
                return str((await house.api.get(job["job_id"]))["status"])

            async def waits() -> bool:
                return await status_of(throttled) == "scheduled"

            await until(waits)
            note = await house.api.create("note", {})
            assert (await house.api.ended(note["job_id"]))["status"] == "succeeded"
            block = await house.api.create("once", {"waits": "before"}, provider="fake", model="m1")
            await speaks(house, block)
            lost = await running(database)
            await register(database, lost.kind, "safe")
            await expire(database, lost.lease.job_id)

            async def is_back() -> bool:
                return bool((await job_row(database, lost.lease.job_id))["status"] == "queued")

            with anyio.fail_after(30):
                await until(is_back)
            assert await status_of(block) == "running"
