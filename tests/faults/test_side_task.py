"""A worker that cannot do its work any more does not go on as if it could."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.faults.house import open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.support.fake_provider import FakeProvider
from tests.support.servers import start_worker
from tests.support.sse_client import open_stream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.mark.parametrize("with_run", [False, True], ids=["idle", "in mid-run"])
async def test_a_worker_whose_side_task_dies_ends_loudly(database_url: str, tmp_path: Path, with_run: bool) -> None:
    pieces = Pieces(["one", "two"])
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(database_url, providers=providers) as worker:
            if with_run:
                fake.scripts["m1"] = pieces.script
                job = await house.api.create_soon("chat", says("go on"))
                pieces.release()
                async with open_stream(house.api.events_url(job)) as stream:
                    await anext(event async for event in stream if event.name == "chunk")
            # Not a fault that passes: the reaper and the heartbeats have nothing to work on any more. Renamed and not
            # dropped, since that takes one lock, which cannot deadlock with what the worker is at.
            await house.database.execute("ALTER TABLE outlive.job_leases RENAME TO job_leases_gone")
            assert await worker.wait(within_s=20) == 1
            assert "UndefinedTable" in worker.log_text()
            assert _is_loud(worker.log_text())


def _is_loud(log: str) -> bool:
    """A line of level error or above, or a traceback: what an operator's alarm looks for."""
    return "Traceback" in log or any(_level(line) in {"error", "critical"} for line in log.splitlines())


def _level(line: str) -> Any:
    try:
        return orjson.loads(line).get("level")
    except orjson.JSONDecodeError:
        return None
