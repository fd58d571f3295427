"""A commit whose outcome is not known is looked up before it is repeated: nothing lost, nothing doubled."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import anyio
import pytest

from schema.calls import CallStart, open_call
from schema.database import Database
from schema.events import Append, Draft, EventKind
from schema.executor import Executor
from schema.hints import HintSender
from tests.support.answers import answers_of
from tests.support.jobs import call_rows, check_log, opened, running
from worker import appender as appending
from worker.appender import Appender, Standing, standing_of

pytestmark = pytest.mark.anyio

PIECES = 80


@pytest.fixture
def standings(monkeypatch: pytest.MonkeyPatch) -> Counter[Standing]:
    """What unconfirmed commits turned out to be."""
    seen: Counter[Standing] = Counter()

    def counted(one: Append, leases: dict[UUID, tuple[UUID, int]]) -> Standing:
        standing = standing_of(one, leases)
        seen[standing] += 1
        return standing

    monkeypatch.setattr(appending, "standing_of", counted)
    monkeypatch.setattr(appending, "AWAY_SECONDS", 0.001)
    monkeypatch.setattr(appending, "SPACING_SECONDS", 0.0)
    return seen


async def test_answers_cut_off_around_commits_lose_and_double_nothing(
    database: Database, database_url: str, standings: Counter[Standing]
) -> None:
    runs = [await running(database) for _ in range(2)]
    texts: dict[UUID, str] = {run.lease.job_id: "" for run in runs}
    async with answers_of(database_url) as proxy, opened(proxy.url) as cut:
        appender = Appender(cut, HintSender(cut))
        writers = [appender.open(run.lease, run.last_seq) for run in runs]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(appender.run)
            proxy.share = 0.2
            for number in range(PIECES):
                for writer in writers:
                    texts[writer.job_id] += f"<{number}>"
                    await appender.chunk(writer, f"<{number}>")
                if number % 5 == 0:
                    await appender.flush(writers[number % 2])
            for writer in writers:
                await appender.flush(writer)
            tasks.cancel_scope.cancel()
        proxy.share = 0.0
    for job_id, text in texts.items():
        assert "".join(event.data for event in (await check_log(database, job_id))[2:]) == text
    assert proxy.cuts >= 10
    assert standings[Standing.WRITTEN] > 0, "no cut came between a commit and its answer: the test proves nothing"
    assert standings[Standing.LOST] == standings[Standing.BROKEN] == 0


async def test_what_goes_with_an_event_is_done_once_however_often_the_answer_is_lost(
    database: Database, database_url: str, standings: Counter[Standing]
) -> None:
    run = await running(database)
    async with answers_of(database_url) as proxy, opened(proxy.url) as cut:
        appender = Appender(cut, HintSender(cut))
        writer = appender.open(run.lease, run.last_seq)
        proxy.share = 0.1
        for number in range(1, 13):
            await appender.commit_with(writer, Draft(EventKind.DATA, str(number)), _opening(run.lease, number))
        proxy.share = 0.0
    events = (await check_log(database, run.lease.job_id))[2:]
    assert [event.data for event in events] == [str(number) for number in range(1, 13)]
    assert [call["call"] for call in await call_rows(database, run.lease.job_id)] == list(range(1, 13))
    assert standings[Standing.WRITTEN] > 0, "no cut came between a commit and its answer: the test proves nothing"


def _opening(lease: object, number: int) -> appending.Also:
    async def also(executor: Executor) -> None:
        assert await open_call(executor, lease, CallStart(number, "p", None))  # type: ignore[arg-type]

    return also


async def test_a_commit_that_was_cancelled_and_is_called_again_is_done_once(
    database: Database, database_url: str
) -> None:
    """Cancelled after the commit and before its answer."""
    run = await running(database)
    async with answers_of(database_url) as proxy, opened(proxy.url) as cut, anyio.create_task_group() as tasks:
        appender = Appender(cut, HintSender(cut))
        writer = appender.open(run.lease, run.last_seq)
        committing = anyio.CancelScope()
        inside = anyio.Event()

        async def hold_the_commit(_: Executor) -> None:
            proxy.hold()
            inside.set()

        async def commit() -> None:
            with committing:
                await appender.commit_with(writer, Draft(EventKind.DATA, "once"), hold_the_commit)

        tasks.start_soon(commit)
        await inside.wait()
        await proxy.held.wait()
        committing.cancel()
        await anyio.wait_all_tasks_blocked()
        proxy.let_go()
        await appender.commit_with(writer, Draft(EventKind.DATA, "once"), _nothing)
    assert [event.data for event in (await check_log(database, run.lease.job_id))[2:]] == ["once"]


async def _nothing(_: Executor) -> None: ...
