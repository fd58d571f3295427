"""A role whose transactions are `repeatable read` breaks nothing: we choose ours, or say that we cannot."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest

from schema.database import Database, DatabaseSettings
from schema.endings import Ending, end_runs
from schema.errors import IsolationRefused
from schema.events import append
from schema.health import examine
from schema.hints import HintSender
from schema.listener import Listener
from schema.runs import Ask, ClaimedRun, claim, heartbeat
from tests.support.jobs import KIND, check_log, expire, job_row, opened, queued, register, says
from worker.reaper import Reaper

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["role", "database"])
async def strict_url(request: pytest.FixtureRequest, database: Database, database_url: str) -> AsyncIterator[str]:
    """The database's address for a role of its own, with the setting on the role or on the database."""
    role = f"strict_{uuid.uuid4().hex}"
    name = await database.fetchval("SELECT current_database()")
    await database.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
    whom = f"ROLE {role}" if request.param == "role" else f'DATABASE "{name}"'
    await database.execute(f"ALTER {whom} SET default_transaction_isolation = 'repeatable read'")
    parts = urlsplit(database_url)
    host = (parts.netloc.rpartition("@")[2]) or ""
    yield parts._replace(netloc=f"{role}@{host}").geturl()
    await database.execute(f"DROP ROLE {role}")


async def test_the_setting_is_really_there(strict_url: str) -> None:
    connection = await asyncpg.connect(strict_url)
    assert await connection.fetchval("SHOW default_transaction_isolation") == "repeatable read"
    await connection.close()


async def test_whole_runs_beside_each_other(strict_url: str) -> None:
    taken: list[ClaimedRun] = []
    async with opened(strict_url, 10) as database:
        await register(database, KIND, "safe")
        for _ in range(40):
            await queued(database)

        async def work() -> None:
            for _ in range(10):
                for run in (await claim(database, Ask("w", [KIND], [], 2, 60))).runs:
                    taken.append(run)
                    assert await append(database, [says(run, run.last_seq, "text")])
                    beats = await heartbeat(database, [run.lease], 60)
                    assert beats[run.lease.job_id].renewed
                    if len(taken) % 5 == 0:
                        await expire(database, run.lease.job_id)
                    else:
                        await end_runs(database, [Ending.succeeded(run.lease, run.last_seq + 1, {})])

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(work)
        reaper = Reaper(database, HintSender(database))
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(reaper._take_back)
        assert len({run.lease.job_id for run in taken}) == 40
        for run in taken:
            await check_log(database, run.lease.job_id)
            assert (await job_row(database, run.lease.job_id))["status"] in {"succeeded", "queued"}


async def test_behind_a_pooler_it_is_refused_at_the_start(strict_url: str, database_url: str) -> None:
    """There is no pooler here; that the two addresses differ is all that we go by."""
    settings = DatabaseSettings(strict_url, database_url + "&application_name=direct")
    assert settings.pooled
    with pytest.raises(IsolationRefused) as caught:
        await Listener(settings, {}, lambda: None).check_address()
    assert caught.value.found == "repeatable read"
    assert any(found.is_fault and "read committed" in str(found) for found in await examine(settings))
