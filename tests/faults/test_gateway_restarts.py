"""A gateway that is killed, and one that is told to end, in the middle of streams."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.faults.follower import Follower
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.truth import expect_succeeded
from tests.support.api import Job
from tests.support.fake_provider import FakeProvider
from tests.support.reader import Reader
from tests.support.servers import start_worker
from tests.support.sse_client import open_stream
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STREAMS = 50
GRACE_S = 10


async def test_a_reader_goes_on_where_it_was_after_its_gateway_was_killed(database_url: str, tmp_path: Path) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(database_url, providers=providers):
            pieces = Pieces([f"piece {number}, " for number in range(12)])
            fake.scripts["m1"] = pieces.script
            job = await house.api.create_soon("chat", says("go on"))
            follower = Follower(house.api.events_url(job))
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follower.run)
                    pieces.release(3)
                    await follower.sees("chunk")
                    await house.gateway.kill()
                    # The job does not notice: this is written while nobody can look.
                    pieces.release(3)
                    await house.gateway.start_again()
                    pieces.release_all()
            assert follower.cuts >= 1
            records = await expect_succeeded(house.database, house.api, job, follower)
            assert records.outcomes == [("succeeded", True)]


async def test_a_gateway_that_is_told_to_end_sends_all_its_readers_away_in_time(
    database_url: str, tmp_path: Path
) -> None:
    async with FakeProvider() as fake, open_house(database_url, {"OUTLIVE_GRACE_SECONDS": str(GRACE_S)}) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(database_url, providers=providers):
            pieces = Pieces(["a", "b"])
            fake.scripts["m1"] = pieces.script
            job = await house.api.create_soon("chat", says("go on"))
            pieces.release()
            readers = [Reader() for _ in range(STREAMS)]
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for reader in readers:
                        tasks.start_soon(_read_once, house, job, reader)
                    await until(lambda: all(reader.text for reader in readers), 30)
                    code = await house.gateway.stop(within_s=GRACE_S)
            assert code == 0
            assert [reader.reconnects[-1].data["reason"] for reader in readers] == ["draining"] * STREAMS
            # They are not told to come back all at the same moment.
            assert len({reader.reconnects[-1].data["retry_ms"] for reader in readers}) > STREAMS // 2
            pieces.release_all()
            await house.gateway.start_again()
            assert (await house.api.ended(job["job_id"]))["result"]["text"] == "ab"


async def _read_once(house: House, job: Job, reader: Reader) -> None:
    """One connection; the strict client raises unless it ends cleanly, and only behind `reconnect`."""
    async with open_stream(house.api.events_url(job)) as stream:
        async for event in stream:
            reader.take(event)
