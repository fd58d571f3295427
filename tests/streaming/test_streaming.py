"""Replay, then follow: to any reader ids rise by one from its cursor, and a stream ends in the log's end or says why.

Invariants 5 to 8. Where replay meets the live tail the log grows at a controlled point, not after a pause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import anyio
import pytest

from gateway import pages, streaming
from gateway import tailer as tailing_module
from gateway.tailer import Tailer
from gateway.tails import TAIL_BYTES, Block, Tail
from gateway.wheel import Pulse
from schema import events
from schema.database import Database
from schema.endings import Ending, end_run
from schema.events import Event, append
from schema.runs import ClaimedRun
from tests.support.jobs import grow, opened, running, says
from tests.support.proxy import proxy_to
from tests.support.streams import NEVER_S, Stream, a_reader, tailing, turning
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

Hook = Callable[[], Awaitable[None]]


async def _finish(database: Database, run: ClaimedRun, seq: int) -> int:
    assert await end_run(database, Ending.succeeded(run.lease, seq, {"text": "x"}))
    return seq + 1


async def _finished_log(database: Database, chunks: int) -> tuple[UUID, int]:
    run = await running(database)
    return run.lease.job_id, await _finish(database, run, await grow(database, run, 2, chunks))


def _then(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    """`hook` runs right after each page that was read empty: between that read and what the reader does next."""
    real = pages.read_page

    async def read_page(database: Database, job_id: UUID, after: int) -> Block:
        page = await real(database, job_id, after)
        if not page.frames:
            await hook()
        return page

    monkeypatch.setattr(streaming, "read_page", read_page)


async def test_a_reader_may_come_back_at_every_seq(database: Database) -> None:
    """A log of 60: from each cursor exactly the rest, then the end."""
    job_id, last = await _finished_log(database, 57)
    assert last == 60
    async with tailing(database) as tailer:
        for cursor in range(last + 1):
            if cursor == last:
                continue  # a reader that has all gets 204 before a stream begins
            stream = Stream()
            await stream.read(a_reader(database, tailer, job_id), cursor)
            assert stream.ids == list(range(cursor + 1, last + 1))
            assert stream.last.name == "succeeded"
            assert all(frame.name != "reconnect" for frame in stream.frames)


async def test_rows_between_the_last_page_and_the_tail_are_seen(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserted after the reader read an empty page and before it hands its place to the tail; no hint, no poll."""
    run = await running(database)
    at = 2

    async def insert() -> None:
        nonlocal at
        at = await grow(database, run, at, 3)

    _then(monkeypatch, insert)
    stream = Stream()
    async with tailing(database) as tailer, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        await stream.reaches(5)
        assert stream.ids == [1, 2, 3, 4, 5]
        tasks.cancel_scope.cancel()


async def test_rows_between_looking_at_the_tail_and_waiting_are_seen(database: Database) -> None:
    """The tail grows after the reader looked and before it waits: what woke it is not forgotten."""
    run = await running(database)
    tailer = Tailer(database, NEVER_S)
    at = 2

    class Growing(streaming.Reader):
        """Between its reading and its waiting the log grows, and the tail has heard of it."""

        async def _read(self, tail: Tail, cursor: int) -> tuple[Block, bool]:
            nonlocal at
            block, is_all = await super()._read(tail, cursor)
            if tail.last is not None and not block.frames and at == 2:
                at = await grow(database, run, at, 3)
                tailer.everything_changed()
                await until(lambda: tail.last == at)
            return block, is_all

    plain = a_reader(database, tailer, run.lease.job_id)
    reader = Growing(*(getattr(plain, name) for name in plain.__dataclass_fields__))
    stream = Stream()
    async with tailing(database, tailer=tailer), anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, reader)
        await stream.reaches(5)
        assert stream.ids == [1, 2, 3, 4, 5]
        tasks.cancel_scope.cancel()


async def test_every_hint_lost_the_poll_delivers(database: Database) -> None:
    """Invariant 6."""
    run = await running(database)
    stream = Stream()
    async with tailing(database, 0.02) as tailer, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        at = 2
        for _ in range(5):
            await stream.reaches(at)
            at = await grow(database, run, at, 4)
        await _finish(database, run, at)
        await stream.ended()
    assert stream.ids == list(range(1, at + 2))
    assert stream.last.name == "succeeded"


async def test_without_poll_or_hint_nothing_comes(database: Database) -> None:
    """What the tests that name one path lean on: there is no third one."""
    run = await running(database)
    stream = Stream()
    async with tailing(database) as tailer, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        await stream.reaches(2)
        await until(lambda: next(iter(tailer._tails.values())).last == 2)
        await until(lambda: not tailer._dirty)
        await grow(database, run, 2, 1)
        await database.fetchval("SELECT 1")
        await anyio.wait_all_tasks_blocked()
        assert stream.ids == [1, 2]
        tasks.cancel_scope.cancel()


async def test_a_reader_behind_the_tail_reads_pages_until_it_meets_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 7: the tail was trimmed; a slow reader's rest comes from the table, the newest from the tail."""
    run = await running(database)
    pages_read: list[int] = []
    real = pages.read_page

    async def counted(database: Database, job_id: UUID, after: int) -> Block:
        pages_read.append(after)
        return await real(database, job_id, after)

    fast, slow = Stream(), Stream()
    async with tailing(database, 0.02) as tailer, anyio.create_task_group() as tasks:
        tasks.start_soon(fast.read, a_reader(database, tailer, run.lease.job_id))
        await fast.reaches(2)
        big = says(run, 2, *("x" * 8000 for _ in range(3 * TAIL_BYTES // 8000)))
        assert await append(database, [big])
        await fast.reaches(big.last_seq)
        monkeypatch.setattr(streaming, "read_page", counted)
        tasks.start_soon(slow.read, a_reader(database, tailer, run.lease.job_id), 3)
        await slow.reaches(big.last_seq)
        last = await _finish(database, run, big.last_seq)
        await slow.ended()
        await fast.ended()
    assert slow.ids == list(range(4, last + 1))
    assert fast.ids == list(range(1, last + 1))
    assert pages_read[0] == 3


@pytest.mark.parametrize("live", [False, True])
async def test_a_hole_in_the_log_is_said(database: Database, live: bool) -> None:
    """Somebody deleted a row: the stream ends in `reconnect`, never as if it were whole."""
    run = await running(database)
    at = await grow(database, run, 2, 1)
    stream = Stream()
    async with tailing(database) as tailer, anyio.create_task_group() as tasks:
        if live:
            tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
            await stream.reaches(at)
            await until(lambda: next(iter(tailer._tails.values())).last == at)
        await grow(database, run, at, 3)
        await database.execute("DELETE FROM outlive.job_events WHERE seq = $1", at + 2)
        if not live:
            tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        tailer.everything_changed()
        await stream.ended()
    assert stream.last.data["reason"] == "database"
    assert at + 3 not in stream.ids


async def test_a_drain_ends_the_stream_with_a_word(database: Database) -> None:
    run = await running(database)
    draining, stream = anyio.Event(), Stream()
    async with tailing(database) as tailer, turning() as wheel, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id, draining=draining), 0, wheel)
        await stream.reaches(2)
        draining.set()
        wheel.wake_all()
        await stream.ended()
    assert stream.ids == [1, 2]
    assert (stream.last.name, stream.last.id) == ("reconnect", None)
    assert stream.last.data == {"reason": "draining", "retry_ms": 1234}
    assert b"retry: 1234\nevent: reconnect\n" in stream.body


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_age_s": 0.1}, "max_age"),
        ({"token_s": 0.1}, "token_expired"),
        ({"max_age_s": 9, "token_s": 0}, "token_expired"),
    ],
)
async def test_a_stream_ends_in_time_and_says_why(database: Database, limits: dict[str, Any], reason: str) -> None:
    run = await running(database)
    stream = Stream()
    async with tailing(database) as tailer, turning() as wheel:
        await stream.read(a_reader(database, tailer, run.lease.job_id, **limits), 0, wheel)
    assert stream.ids == [1, 2]
    assert stream.last.data["reason"] == reason


async def test_a_log_that_ended_beats_every_other_end(database: Database) -> None:
    job_id, last = await _finished_log(database, 1)
    draining, stream = anyio.Event(), Stream()
    draining.set()
    async with tailing(database) as tailer:
        await stream.read(a_reader(database, tailer, job_id, draining=draining, max_age_s=0, token_s=0))
    assert stream.ids == list(range(1, last + 1))
    assert stream.last.name == "succeeded"


async def test_silence_is_broken_by_heartbeats_that_are_not_of_the_log(database: Database) -> None:
    run = await running(database)
    stream = Stream()
    async with tailing(database, 0.02) as tailer, turning() as wheel, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id, heartbeat_s=0.05), 0, wheel)
        await until(lambda: [frame.name for frame in stream.frames].count("heartbeat") >= 3)
        at = await grow(database, run, 2, 1)
        await stream.reaches(at)
        tasks.cancel_scope.cancel()
    beats = [frame for frame in stream.frames if frame.name == "heartbeat"]
    assert all(beat.id is None and beat.data == {} for beat in beats)
    assert stream.ids == [1, 2, 3]


async def test_a_database_that_goes_away_ends_a_replay_with_a_word(database: Database) -> None:
    job_id, _ = await _finished_log(database, 3)
    stream = Stream()
    async with (
        opened(database.settings.url.replace("outlive_test_", "outlive_gone_")) as gone,
        tailing(gone) as tailer,
    ):
        await stream.read(a_reader(gone, tailer, job_id))
    assert [frame.name for frame in stream.frames] == ["reconnect"]
    assert stream.last.data["reason"] == "database"


async def test_followers_outlive_a_database_that_is_away(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has caught up waits it out, and misses nothing."""
    monkeypatch.setattr(tailing_module, "AWAY_SECONDS", 0.05)
    run = await running(database)
    stream = Stream()
    async with (
        proxy_to(database_url) as proxy,
        opened(proxy.url) as far,
        tailing(far, 0.05) as tailer,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stream.read, a_reader(far, tailer, run.lease.job_id))
        await until(lambda: bool(tailer._tails) and next(iter(tailer._tails.values())).last == 2)
        at = 2
        for _ in range(5):
            proxy.cut()
            at = await grow(database, run, at, 2)
            await stream.reaches(at)
        await _finish(database, run, at)
        await stream.ended()
    assert stream.ids == list(range(1, at + 2))


async def test_waiting_readers_hold_no_connection(database_url: str) -> None:
    """Invariant 8: fifty readers wait, of a pool of two, and a query goes through at once."""
    async with opened(database_url, 2) as database:
        run = await running(database)
        streams = [Stream() for _ in range(50)]
        async with tailing(database) as tailer, anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
            for stream in streams:
                await stream.reaches(2)
            async with database.connection() as one, database.connection() as two:
                with anyio.fail_after(2):
                    assert await one.fetchval("SELECT 1") == await two.fetchval("SELECT 1")
            at = await _finish(database, run, await grow(database, run, 2, 5))
            tailer.everything_changed()
            for stream in streams:
                await stream.ended()
        assert all(stream.ids == list(range(1, at + 1)) for stream in streams)


async def test_a_reader_that_writes_slowly_holds_no_connection_and_no_other_reader(database_url: str) -> None:
    """Invariant 14, above the socket: it stands still in the middle of its write."""
    async with opened(database_url, 1) as database:
        run = await running(database)
        go, quick = anyio.Event(), Stream()

        class Slow(Stream):
            async def read(self, reader: streaming.Reader, cursor: int = 0, wheel: object = None) -> None:
                async for piece in reader.follow(cursor, Pulse()):
                    self.body += piece
                    await go.wait()
                self.done.set()

        slow = Slow()
        async with tailing(database, 0.02) as tailer, anyio.create_task_group() as tasks:
            tasks.start_soon(slow.read, a_reader(database, tailer, run.lease.job_id))
            tasks.start_soon(quick.read, a_reader(database, tailer, run.lease.job_id))
            at = await _finish(database, run, await grow(database, run, 2, 30))
            await quick.ended()
            assert slow.ids == []
            go.set()
            await slow.ended()
        assert slow.ids == quick.ids == list(range(1, at + 1))


async def test_readers_that_leave_leave_nothing(database: Database) -> None:
    """Invariant 7: a tail lives as long as its readers, also where one is cut off in the middle."""
    runs = [await running(database) for _ in range(3)]
    async with tailing(database, 0.02) as tailer:
        async with anyio.create_task_group() as tasks:
            streams = []
            for run in runs * 3:
                streams.append(Stream())
                tasks.start_soon(streams[-1].read, a_reader(database, tailer, run.lease.job_id))
            for stream in streams:
                await stream.reaches(2)
            assert tailer.watched == 3
            tasks.cancel_scope.cancel()
        assert tailer.watched == 0


async def test_a_reader_comes_back_while_the_query_for_its_last_stream_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new tail begins elsewhere than where that query began to read."""
    run = await running(database)
    at = await grow(database, run, 2, 2)
    asked, go = anyio.Event(), anyio.Event()
    real = events.read_many

    async def slow(database: Database, cursors: Mapping[UUID, int], rows: int) -> Mapping[UUID, Sequence[Event]]:
        found = await real(database, cursors, rows)
        if not go.is_set():
            asked.set()
            await go.wait()
        return found

    monkeypatch.setattr(tailing_module, "read_many", slow)
    first, second = Stream(), Stream()
    async with tailing(database) as tailer, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(first.read, a_reader(database, tailer, run.lease.job_id), 2)
            await first.reaches(at)
            at = await grow(database, run, at, 2)
            tailer.everything_changed()
            await asked.wait()
            leaving.cancel_scope.cancel()
        tasks.start_soon(second.read, a_reader(database, tailer, run.lease.job_id), 3)
        await second.reaches(at)
        at = await _finish(database, run, at)
        go.set()
        tailer.everything_changed()
        await second.ended()
    assert second.ids == list(range(4, at + 1))
