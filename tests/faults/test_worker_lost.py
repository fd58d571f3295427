"""A worker that dies or stalls in the middle of a job: another takes over, and the first can do no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import anyio
import pytest

from tests.faults.follower import Follower
from tests.faults.house import TEXT, House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.truth import expect_same, expect_succeeded, records_of
from tests.support.api import Job
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import expire, lease_row
from tests.support.processes import ServerProcess
from tests.support.proxy import proxy_to
from tests.support.servers import start_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# So that a lost one is missed soon; three heartbeats fit in even on a machine with other things to do.
LEASE_S = 3
# 20 sentences are some 300 words: about 6 s, in which it is killed, and as long again for the second attempt.
WORDS_PER_SECOND = 100
PIECES = [f"piece {number}, " for number in range(12)]


@asynccontextmanager
async def two_workers(
    database_url: str, providers: Path, lease_s: int = LEASE_S
) -> AsyncIterator[list[ServerProcess]]:
    environment = {"OUTLIVE_LEASE_SECONDS": str(lease_s)}
    async with (
        start_worker(database_url, environment, providers=providers) as one,
        start_worker(database_url, environment, providers=providers) as other,
    ):
        yield [one, other]


async def holder_first(house: House, job: Job, workers: list[ServerProcess]) -> list[ServerProcess]:
    """The worker that runs the job, then the other; a worker's name holds its pid."""
    lease = await lease_row(house.database, UUID(job["job_id"]))
    assert lease is not None
    return sorted(workers, key=lambda worker: f"-{worker.pid}-" not in lease["worker"])


@asynccontextmanager
async def followed(house: House, job: Job) -> AsyncIterator[Follower]:
    """A reader from the job's first event; the block ends when it has read to the end."""
    follower = Follower(house.api.events_url(job))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.run)
            yield follower


async def test_a_killed_worker_is_replaced_and_the_reader_gets_the_whole_second_output(
    database_url: str, tmp_path: Path
) -> None:
    providers = write_providers(tmp_path, words_per_second=WORDS_PER_SECOND)
    async with open_house(database_url) as house, two_workers(database_url, providers) as workers:
        job = await house.api.create_soon("summarize", {"text": TEXT, "sentences": 20})
        async with followed(house, job) as follower:
            await follower.sees("chunk")
            void = follower.reader.text
            lost, _ = await holder_first(house, job, workers)
            await lost.kill()
            again = await follower.sees("attempt", attempt=2)
        assert void
        assert again.data == {"attempt": 2, "resumes_after": 0, "reason": "lease_expired"}
        records = await expect_succeeded(house.database, house.api, job, follower)
        assert records.outcomes == [("lost", True), ("succeeded", True)]
        assert records.job["attempts"] == 2
        assert records.call_outcomes == [(1, "unknown"), (2, "succeeded")]
        assert (await follower.sees("external", attempt=1)).data["outcome"] == "unknown"


async def test_nothing_of_a_stalled_worker_is_written_once_another_has_ended_the_job(
    database_url: str, tmp_path: Path
) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with two_workers(database_url, providers) as workers:
            stale = Pieces(PIECES)
            fake.scripts["m1"] = stale.script
            job = await house.api.create_soon("chat", says("go on"))
            async with followed(house, job) as follower:
                stale.release(3)
                await follower.sees("chunk")
                stalled, other = await holder_first(house, job, workers)
                stalled.pause()
                # What the provider says now waits in the socket of the stalled one.
                stale.release_all()
                fresh = Pieces(["the second answer"])
                fake.scripts["m1"] = fresh.script
                fresh.release_all()
            records = await expect_succeeded(house.database, house.api, job, follower)
            await _wake(stalled)
            assert await records_of(house.database, job) == records
            assert records.outcomes == [("lost", True), ("succeeded", True)]
            assert records.call_outcomes == [(1, "unknown"), (2, "succeeded")]
            await other.stop()
            await _expect_alive(house, fake, stalled)


async def test_a_stalled_worker_that_still_trusts_its_lease_adds_nothing_to_the_log_of_another(
    database_url: str, tmp_path: Path
) -> None:
    """By its own clock it may go on, and it does: what stops it is the fence alone."""
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with two_workers(database_url, providers, lease_s=60) as workers:
            stale, fresh = Pieces(["stale, "] * 12), Pieces(["fresh, "] * 12)
            fake.scripts["m1"] = stale.script
            job = await house.api.create_soon("chat", says("go on"))
            async with followed(house, job) as follower:
                stale.release(3)
                await follower.sees("chunk")
                stalled, _ = await holder_first(house, job, workers)
                stalled.pause()
                stale.release_all()
                fake.scripts["m1"] = fresh.script
                fresh.release(2)
                await expire(house.database, UUID(job["job_id"]))
                await follower.sees("attempt", attempt=2)
                await until(lambda: follower.reader.text)
                await _wake(stalled)
                assert "lease given up" not in stalled.log_text()
                expect_same(follower.seen, (await records_of(house.database, job)).events)
                fresh.release_all()
            records = await expect_succeeded(house.database, house.api, job, follower)
            assert follower.reader.text == "fresh, " * 12
            assert records.outcomes == [("lost", True), ("succeeded", True)]
            assert [event.attempt for event in records.events] == sorted(event.attempt for event in records.events)


async def test_a_worker_cut_off_from_postgres_lets_go_before_another_begins(
    database_url: str, tmp_path: Path
) -> None:
    """Its statements wait in the network meanwhile and arrive when the job has long ended: too late to do harm."""
    environment = {"OUTLIVE_LEASE_SECONDS": "6"}
    async with FakeProvider() as fake, open_house(database_url) as house, proxy_to(database_url) as proxy:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(proxy.url, environment, providers=providers) as lonely:
            stale, fresh = Pieces(["stale, "] * 12), Pieces(["fresh"])
            fake.scripts["m1"] = stale.script
            job = await house.api.create_soon("chat", says("go on"))
            async with start_worker(database_url, environment, providers=providers):
                async with followed(house, job) as follower:
                    stale.release(3)
                    await follower.sees("chunk")
                    proxy.freeze()
                    stale.release(6)
                    fake.scripts["m1"] = fresh.script
                    first, _ = await fake.arrived(2)
                    # Never two requests for one job at the same time.
                    assert first.gone.is_set()
                    fresh.release_all()
                records = await expect_succeeded(house.database, house.api, job, follower)
                assert records.outcomes == [("lost", True), ("succeeded", True)]
                known = len(lonely.log_text())
                proxy.thaw()
                await _has_learned(lonely, known)
                assert await records_of(house.database, job) == records


async def _wake(stalled: ServerProcess) -> None:
    """Lets it go on, until it has tried to write and has learned that it may not."""
    known = len(stalled.log_text())
    stalled.resume()
    await _has_learned(stalled, known)


async def _has_learned(worker: ServerProcess, known: int) -> None:
    """Its run has ended without a word in the log, which is said behind the first `known` characters of its own."""

    def has_learned() -> bool:
        news = worker.log_text()[known:]
        return "run lost its lease" in news or '"confirmed": false' in news

    await until(has_learned, 30, what="the stale run's end")


async def _expect_alive(house: House, fake: FakeProvider, worker: ServerProcess) -> None:
    """It does further work, so it was not silent because it was dead."""
    worker.expect_running()
    more = Pieces(["still here"])
    fake.scripts["m1"] = more.script
    more.release_all()
    job = await house.api.create("chat", says("again"))
    assert (await house.api.ended(job["job_id"]))["result"]["text"] == "still here"


async def test_a_stopped_worker_hands_its_job_back_and_the_attempt_is_not_counted(
    database_url: str, tmp_path: Path
) -> None:
    providers = write_providers(tmp_path, words_per_second=WORDS_PER_SECOND)
    async with open_house(database_url) as house, two_workers(database_url, providers) as workers:
        job = await house.api.create_soon("summarize", {"text": TEXT, "sentences": 20}, max_attempts=1)
        async with followed(house, job) as follower:
            await follower.sees("chunk")
            stopped, _ = await holder_first(house, job, workers)
            assert await stopped.stop() == 0
            again = await follower.sees("attempt", attempt=2)
        assert again.data == {"attempt": 2, "resumes_after": 0, "reason": "released"}
        records = await expect_succeeded(house.database, house.api, job, follower)
        assert records.outcomes == [("released", False), ("succeeded", True)]
        assert records.job["attempts"] == 1
        assert [attempt for attempt, _ in records.call_outcomes] == [1, 2]
