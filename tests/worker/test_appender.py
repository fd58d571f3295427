"""The appender: whatever runs say is in the table, once, in order, and no run suffers for another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema import database as pool
from schema.calls import CallStart, open_call
from schema.database import Database
from schema.events import Draft, EventKind
from schema.executor import Executor
from schema.hints import HintSender
from schema.runs import AttemptOutcome, ClaimedRun, NextReason, put_back
from tests.support.jobs import call_rows, check_log, claim_one, expire, locked, log_of, opened, running
from tests.support.waiting import until
from worker import appender as appending
from worker.appender import Appender
from worker.log_writer import BUFFER_CHARACTERS, CHUNK_CHARACTERS, LeaseLost, LogWriter, WriterBroken

pytestmark = pytest.mark.anyio

_FOREVER_S = 1e6
_LEASE_LOCK = "SELECT 1 FROM outlive.job_leases WHERE job_id = $1 FOR UPDATE"


def _made(database: Database) -> Appender:
    return Appender(database, HintSender(database))


@asynccontextmanager
async def _at_work(appender: Appender) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run)
        yield
        tasks.cancel_scope.cancel()


async def _writer(database: Database, appender: Appender) -> tuple[ClaimedRun, LogWriter]:
    run = await running(database)
    return run, appender.open(run.lease, run.last_seq)


async def _said(database: Database, job_id: UUID) -> list[str]:
    return [event.data for event in (await check_log(database, job_id))[2:]]


def _data(text: str) -> Draft:
    return Draft(EventKind.DATA, f'{{"name": "{text}", "value": null}}')


async def test_what_waits_for_one_flush_is_one_event(database: Database) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)
    for word in ("one ", "two ", "three"):
        await appender.chunk(writer, word)
    await appender.event(writer, _data("x"))
    await appender.chunk(writer, "four")
    async with _at_work(appender):
        assert await appender.flush(writer) == 5
    assert await _said(database, run.lease.job_id) == ["one two three", _data("x").data, "four"]


_SIZES = st.lists(st.integers(0, 3) | st.integers(8100, 8300) | st.integers(16_000, 40_000), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=_SIZES, flush_at=st.sets(st.integers(0, 11)))
async def test_no_text_is_lost_or_moved_and_no_line_is_too_long(
    database: Database, sizes: list[int], flush_at: set[int]
) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)
    texts = [f"{number}:".ljust(size, "\u20ac") for number, size in enumerate(sizes)]
    async with _at_work(appender):
        for number, text in enumerate(texts):
            await appender.chunk(writer, text)
            if number in flush_at:
                await appender.flush(writer)
        await appender.flush(writer)
    said = await _said(database, run.lease.job_id)
    assert "".join(said) == "".join(texts)
    assert all(len(text) <= CHUNK_CHARACTERS for text in said)


async def test_a_full_buffer_makes_its_own_run_wait(database: Database) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)
    _, other = await _writer(database, appender)
    said: list[int] = []

    async def talk() -> None:
        for _ in range(40):
            await appender.chunk(writer, "x" * CHUNK_CHARACTERS)
            said.append(CHUNK_CHARACTERS)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        await anyio.wait_all_tasks_blocked()
        assert BUFFER_CHARACTERS < sum(said) <= BUFFER_CHARACTERS + CHUNK_CHARACTERS
        with anyio.fail_after(1):
            await appender.chunk(other, "not held up")
        tasks.start_soon(appender.run)
        await until(lambda: len(said) == 40)
        await appender.flush(writer)
        tasks.cancel_scope.cancel()
    assert sum(map(len, await _said(database, run.lease.job_id))) == 40 * CHUNK_CHARACTERS


@pytest.mark.parametrize("bad", ["\x00", "\ud800"])
async def test_an_event_that_is_refused_fails_its_own_run_only(database: Database, bad: str) -> None:
    """Put in by hand: what handlers say is cleaned before."""
    appender = _made(database)
    good, good_writer = await _writer(database, appender)
    broken, broken_writer = await _writer(database, appender)
    await appender.event(broken_writer, _data(bad))
    await appender.chunk(good_writer, "good")
    async with _at_work(appender):
        await appender.flush(good_writer)
        with pytest.raises(WriterBroken):
            await appender.flush(broken_writer)
        with pytest.raises(WriterBroken):
            await appender.chunk(broken_writer, "more")
        await appender.chunk(good_writer, "and more")
        await appender.flush(good_writer)
    assert "".join(await _said(database, good.lease.job_id)) == "goodand more"
    assert await _said(database, broken.lease.job_id) == []


async def test_a_lease_taken_over_is_lost_to_its_run(database: Database) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)
    async with _at_work(appender):
        await appender.chunk(writer, "mine")
        await appender.flush(writer)
        await expire(database, run.lease.job_id)
        assert await put_back(database, run.lease, 3, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
        await claim_one(database, run.kind)
        await appender.chunk(writer, "stale")
        with pytest.raises(LeaseLost):
            await appender.flush(writer)
        with pytest.raises(LeaseLost):
            await appender.chunk(writer, "stale")
        with pytest.raises(LeaseLost):
            await appender.commit_with(writer, _data("stale"), _nothing)
    assert "stale" not in "".join(await _said(database, run.lease.job_id))


async def _nothing(_: Executor) -> None: ...


async def test_a_log_that_is_elsewhere_breaks_its_run(database: Database) -> None:
    """Somebody wrote to the lease by hand: nothing can be counted on from there."""
    appender = _made(database)
    run, writer = await _writer(database, appender)
    await database.execute("UPDATE outlive.job_leases SET last_seq = 7 WHERE job_id = $1", run.lease.job_id)
    async with _at_work(appender):
        await appender.chunk(writer, "x")
        with pytest.raises(WriterBroken):
            await appender.flush(writer)
    assert len(await log_of(database, run.lease.job_id)) == 2


async def test_a_locked_lease_holds_up_its_own_run_only(database: Database, database_url: str) -> None:
    appender = _made(database)
    held, held_writer = await _writer(database, appender)
    _, free_writer = await _writer(database, appender)
    async with _at_work(appender):
        async with locked(database_url, _LEASE_LOCK, held.lease.job_id):
            await appender.chunk(held_writer, "held")
            for word in ("one", "two"):
                await appender.chunk(free_writer, word)
                await appender.flush(free_writer)
            assert not held_writer.is_empty
        await appender.flush(held_writer)
    assert await _said(database, held.lease.job_id) == ["held"]


async def test_a_table_that_is_locked_for_long_is_waited_for(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the rewrite that takes erased bytes off the disk: neither the run nor the appender dies of it."""
    monkeypatch.setitem(pool._SESSION, "lock_timeout", "30ms")
    monkeypatch.setattr(appending, "AWAY_SECONDS", 0.01)
    async with opened(database_url) as database:
        appender = _made(database)
        run, writer = await _writer(database, appender)
        table = await database.fetchval("SELECT tableoid::regclass::text FROM outlive.job_events LIMIT 1")
        async with (
            _at_work(appender),
            anyio.create_task_group() as tasks,
            locked(database_url, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
        ):
            await appender.chunk(writer, "x")
            tasks.start_soon(appender.commit_with, writer, _data("y"), _nothing)
            await until(
                lambda: database.fetchval(
                    "SELECT xact_rollback > 2 FROM pg_stat_database WHERE datname = current_database()"
                )
            )
        assert await _said(database, run.lease.job_id) == ["x", _data("y").data]


async def test_the_first_piece_of_a_run_waits_for_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an endless spacing it comes all the same; the second one does not before somebody asks."""
    monkeypatch.setattr(appending, "SPACING_SECONDS", _FOREVER_S)
    appender = _made(database)
    _, other_writer = await _writer(database, appender)
    run, writer = await _writer(database, appender)
    async with _at_work(appender):
        await appender.chunk(other_writer, "begins the spacing")
        await until(lambda: other_writer.is_empty)
        await appender.chunk(writer, "first")
        await until(lambda: writer.is_empty)
        await appender.chunk(writer, "second")
        await anyio.wait_all_tasks_blocked()
        assert not writer.is_empty
        await appender.flush(writer)
    assert await _said(database, run.lease.job_id) == ["first", "second"]


async def test_something_else_in_the_same_commit_is_done_once_and_in_order(database: Database) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)
    async with _at_work(appender):
        await appender.chunk(writer, "before")
        for number in (1, 2):
            await appender.commit_with(writer, _data(str(number)), _opening(run, number))
        await appender.chunk(writer, "after")
        await appender.flush(writer)
    assert await _said(database, run.lease.job_id) == ["before", _data("1").data, _data("2").data, "after"]
    assert [call["call"] for call in await call_rows(database, run.lease.job_id)] == [1, 2]


def _opening(run: ClaimedRun, number: int) -> appending.Also:
    async def also(executor: Executor) -> None:
        assert await open_call(executor, run.lease, CallStart(number, "p", None))

    return also


async def test_where_the_other_thing_fails_the_event_is_not_written(database: Database) -> None:
    appender = _made(database)
    run, writer = await _writer(database, appender)

    async def fails(_: Executor) -> None:
        raise ZeroDivisionError

    async with _at_work(appender):
        with pytest.raises(ZeroDivisionError):
            await appender.commit_with(writer, _data("x"), fails)
        await appender.chunk(writer, "goes on")
        await appender.flush(writer)
    assert await _said(database, run.lease.job_id) == ["goes on"]


async def test_what_is_said_while_another_commit_is_made_comes_behind_it(database: Database) -> None:
    """The flusher keeps away from a log whose end somebody else writes."""
    appender = _made(database)
    run, writer = await _writer(database, appender)
    go, inside = anyio.Event(), anyio.Event()

    async def slow(_: Executor) -> None:
        inside.set()
        await go.wait()

    async with _at_work(appender), anyio.create_task_group() as tasks:
        tasks.start_soon(appender.commit_with, writer, _data("x"), slow)
        await inside.wait()
        await appender.chunk(writer, "meanwhile")
        await anyio.wait_all_tasks_blocked()
        go.set()
    async with _at_work(appender):
        await appender.flush(writer)
    assert await _said(database, run.lease.job_id) == [_data("x").data, "meanwhile"]


async def test_many_runs_share_a_commit(database: Database) -> None:
    """What all runs said while one flush was being committed is one statement."""
    appender = _made(database)
    pairs = [await _writer(database, appender) for _ in range(20)]
    for number, (_, writer) in enumerate(pairs):
        await appender.chunk(writer, str(number))
    async with _at_work(appender):
        for _, writer in pairs:
            await appender.flush(writer)
    same = "SELECT count(DISTINCT xmin::text) FROM outlive.job_events WHERE kind = 'chunk'"
    assert await database.fetchval(same) == 1


async def test_a_writer_that_is_given_up_while_it_is_written_stops_nobody(
    database: Database, database_url: str
) -> None:
    appender = _made(database)
    _, given_up = await _writer(database, appender)
    run, writer = await _writer(database, appender)
    table = await database.fetchval("SELECT tableoid::regclass::text FROM outlive.job_events LIMIT 1")
    async with _at_work(appender):
        async with locked(database_url, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"):
            await appender.chunk(given_up, "x")
            await until(lambda: given_up.in_flight is not None)
            given_up.fail(WriterBroken())
        await appender.chunk(writer, "goes on")
        await appender.flush(writer)
    assert await _said(database, run.lease.job_id) == ["goes on"]
