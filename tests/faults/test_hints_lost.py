"""LISTEN and NOTIFY fail under a real gateway and a real worker; the tables alone carry every event."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx
import pytest

from schema.database import Database
from tests.faults.follower import Follower
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.truth import expect_succeeded
from tests.support.fake_provider import FakeProvider
from tests.support.proxy import proxy_to
from tests.support.servers import start_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TERMINATIONS = 5

# Nothing but a listener sits there after a LISTEN or after the ping that it sends itself; our pools name themselves.
_LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = '' AND pid <> pg_backend_pid()
        AND (query LIKE 'LISTEN %' OR query LIKE '%pg_notify%')
"""


async def listeners(database: Database) -> set[int]:
    """The backends of all LISTEN connections."""
    return {row["pid"] for row in await database.fetch(_LISTENERS)}


async def _terminate(database: Database) -> None:
    """Ends all LISTEN connections; returns when gateway and worker have new ones."""
    before = await listeners(database)
    assert len(before) == 2
    for pid in before:
        await database.fetchval("SELECT pg_terminate_backend($1)", pid)

    async def renewed() -> bool:
        now = await listeners(database)
        return len(now) == 2 and not now & before

    await until(renewed, 20)


async def test_events_go_on_while_listen_is_terminated_again_and_again(database_url: str, tmp_path: Path) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(database_url, providers=providers) as worker:
            pieces = Pieces([f"piece {number}, " for number in range(3 * TERMINATIONS)])
            fake.scripts["m1"] = pieces.script
            job = await house.api.create_soon("chat", says("go on"))
            follower = Follower(house.api.events_url(job))
            with anyio.fail_after(80):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follower.run)
                    for number in range(TERMINATIONS):
                        pieces.release()
                        await _terminate(house.database)
                        pieces.release()
                        await until(lambda: len(follower.reader.text) > 20 * number, 10)  # noqa: B023
                    pieces.release_all()
            await expect_succeeded(house.database, house.api, job, follower)
            # Streams never noticed: it was one connection, and a last one for the 204.
            assert follower.connections == 2
            for process in (house.gateway, worker):
                assert process.log_text().count("listener lost") >= TERMINATIONS


async def test_a_black_hole_in_place_of_listen_costs_time_and_no_event(database_url: str, tmp_path: Path) -> None:
    """No hint arrives at all, neither at the gateway nor at the worker: each looks for itself."""
    async with FakeProvider() as fake, proxy_to(database_url) as proxy:
        direct = {"OUTLIVE_DIRECT_URL": proxy.url}
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with open_house(database_url, direct) as house, start_worker(database_url, direct, providers=providers):
            await until(lambda: _listens(house), 20)
            proxy.freeze()
            pieces = Pieces([f"piece {number}, " for number in range(6)])
            fake.scripts["m1"] = pieces.script
            # The worker hears of no new work either.
            job = await house.api.create_soon("chat", says("go on"))
            follower = Follower(house.api.events_url(job), on_event=lambda _: pieces.release())
            with anyio.fail_after(60):
                await follower.run()
            await expect_succeeded(house.database, house.api, job, follower)
            assert follower.connections == 2
            assert follower.reader.reconnects == []
            proxy.thaw()
            proxy.cut()
            await until(lambda: _listens(house), 20, what="LISTEN up again")


async def _listens(house: House) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{house.gateway.url}/readyz")
    return bool(answer.json()["listen"] == "up")
