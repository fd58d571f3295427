"""Invariant 6: a hint says "look" and nothing else; the LISTEN connection heals, and what it missed is read."""

from __future__ import annotations

import uuid

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tailer import Tailer
from schema import listener as listening_module
from schema.database import Database
from schema.hints import EVENTS_CHANNEL, PAYLOAD_BYTES, WORK_CHANNEL, HintSender, decode_hints, encode_hints, short_id
from schema.listener import Listener
from tests.support.jobs import connected, grow, log_of, opened, running
from tests.support.proxy import proxy_to
from tests.support.streams import NEVER_S, Stream, a_reader, listening, tailing
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

_NOTIFY = "SELECT pg_notify($1, $2)"


async def test_hints_alone_deliver(database: Database) -> None:
    """The poll never comes: only a hint can have brought what arrives."""
    run = await running(database)
    hints, stream = HintSender(database), Stream()
    async with tailing(database) as tailer, listening(database, tailer), anyio.create_task_group() as tasks:
        tasks.start_soon(hints.run)
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        at = 2
        for _ in range(10):
            await stream.reaches(at)
            at = await grow(database, run, at, 2)
            hints.events(run.lease.job_id, at)
        await stream.reaches(at)
        tasks.cancel_scope.cancel()
    assert stream.ids == list(range(1, at + 1))


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "nonsense",
        ",,,:,:",
        "{job}",
        "{job}:",
        "{job}:-5",
        "{job}:+5",
        "{job}:1",
        "{job}:999999999",
        "{job}:9999999999999999999999",
        "{job}:\u0663",
        "\u0663" * 22 + ":5",
        "AAAAAAAAAAAAAAAAAAAAAA:7",
        "=" * 22 + ":7",
        "{job}:5,{job}:4,{job}:5" + ",x:1" * 1500,
    ],
)
async def test_a_forged_hint_changes_nothing(database: Database, payload: str) -> None:
    """Any role of the database may send one. Afterwards the stream goes on as if it had not been."""
    run = await running(database)
    stream = Stream()
    async with tailing(database) as tailer, listening(database, tailer), anyio.create_task_group() as tasks:
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        await stream.reaches(2)
        forged = payload.replace("{job}", short_id(run.lease.job_id))
        for _ in range(3):
            await database.fetchval(_NOTIFY, EVENTS_CHANNEL, forged)
        at = await grow(database, run, 2, 3)
        await database.fetchval(_NOTIFY, EVENTS_CHANNEL, f"{short_id(run.lease.job_id)}:{at}")
        await stream.reaches(at)
        tasks.cancel_scope.cancel()
    assert stream.ids == [event.seq for event in await log_of(database, run.lease.job_id)]
    assert all(frame.name != "reconnect" for frame in stream.frames)


@given(st.text())
def test_no_payload_can_break_its_reader(payload: str) -> None:
    for short, seq in decode_hints(payload):
        assert isinstance(short, str)
        assert 0 <= seq < 10**9


@given(st.lists(st.tuples(st.uuids(), st.integers(1, 999_999_999)), max_size=600))
def test_what_was_announced_arrives_in_payloads_that_postgresql_takes(seqs: list[tuple[uuid.UUID, int]]) -> None:
    payloads = list(encode_hints(seqs))
    assert all(0 < len(payload.encode()) <= PAYLOAD_BYTES for payload in payloads)
    assert [pair for payload in payloads for pair in decode_hints(payload)] == [
        (short_id(job_id), seq) for job_id, seq in seqs
    ]


async def test_a_burst_is_few_notifications(database: Database, database_url: str) -> None:
    """Coalesced: a notification a commit would be a lock of the whole database a commit."""
    heard: list[str] = []
    hints = HintSender(database)
    job_ids = [uuid.uuid4() for _ in range(500)]
    async with connected(database_url) as other, anyio.create_task_group() as tasks:
        await other.add_listener(EVENTS_CHANNEL, lambda *args: heard.append(args[3]))
        for seq in range(1, 20):
            for job_id in job_ids:
                hints.events(job_id, seq)
        tasks.start_soon(hints.run)
        await until(lambda: sum(payload.count(":") for payload in heard) >= len(job_ids))
        tasks.cancel_scope.cancel()
    assert len(heard) <= 3
    assert {pair for payload in heard for pair in decode_hints(payload)} == {
        (short_id(job_id), 19) for job_id in job_ids
    }


async def test_a_listener_that_was_terminated_comes_back_and_catches_up(database: Database) -> None:
    """With no poll: what was written while nobody listened is read because the listener came back."""
    run = await running(database)
    stream = Stream()
    async with (
        tailing(database) as tailer,
        listening(database, tailer) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        at = 2
        for _ in range(3):
            await stream.reaches(at)
            await until(lambda: listener.up)
            (row,) = await database.fetch(_BACKENDS)
            at = await grow(database, run, at, 2)
            await database.fetchval("SELECT pg_terminate_backend($1)", row["pid"])
            await stream.reaches(at)
        tasks.cancel_scope.cancel()
    assert stream.ids == list(range(1, at + 1))


# The listener's is the one that is not of the pool.
_BACKENDS = """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'outlive'
    AND backend_type = 'client backend'"""


async def test_a_listener_in_a_black_hole_heals(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stays open and says nothing: only its own ping can tell."""
    monkeypatch.setattr(listening_module, "PONG_SECONDS", 0.3)
    run = await running(database)
    stream = Stream()
    async with (
        proxy_to(database_url) as proxy,
        opened(proxy.url) as far,
        tailing(database) as tailer,
        listening(far, tailer, 0.1) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stream.read, a_reader(database, tailer, run.lease.job_id))
        await stream.reaches(2)
        proxy.freeze()
        at = await grow(database, run, 2, 2)
        await until(lambda: not listener.up)
        proxy.cut()
        proxy.thaw()
        await stream.reaches(at)
        await until(lambda: listener.up)
        tasks.cancel_scope.cancel()
    assert stream.ids == [1, 2, 3, 4]


async def test_listening_again_is_told_even_where_nothing_was_missed(database: Database) -> None:
    resets: list[int] = []
    listener = Listener(database.settings, {WORK_CHANNEL: lambda _: None}, lambda: resets.append(1), NEVER_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.run)
        for _ in range(3):
            await until(lambda: listener.up)
            resets.clear()
            (row,) = await until(lambda: database.fetch(_BACKENDS))
            await database.fetchval("SELECT pg_terminate_backend($1)", row["pid"])
            await until(lambda: bool(resets))
        tasks.cancel_scope.cancel()


async def test_a_work_hint_reaches_its_channel_only(database: Database, database_url: str) -> None:
    heard: list[tuple[str, str]] = []
    hints = HintSender(database)
    async with connected(database_url) as other, anyio.create_task_group() as tasks:
        for channel in (WORK_CHANNEL, EVENTS_CHANNEL):
            await other.add_listener(channel, lambda *args: heard.append((args[2], args[3])))
        tasks.start_soon(hints.run)
        hints.work()
        await until(lambda: heard)
        tasks.cancel_scope.cancel()
    assert heard == [(WORK_CHANNEL, "")]


async def test_hints_that_cannot_be_sent_are_dropped_and_the_next_one_is_sent(
    database: Database, database_url: str
) -> None:
    heard: list[str] = []
    async with proxy_to(database_url) as proxy, opened(proxy.url) as far, connected(database_url) as other:
        await other.add_listener(EVENTS_CHANNEL, lambda *args: heard.append(args[3]))
        hints = HintSender(far)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hints.run)
            hints.events(uuid.uuid4(), 1)
            await until(lambda: len(heard) == 1)
            proxy.cut()
            job_id = uuid.uuid4()

            async def sent() -> bool:
                hints.events(job_id, 2)
                return len(heard) > 1

            await until(sent)
            tasks.cancel_scope.cancel()
    assert heard[-1] == f"{short_id(job_id)}:2"


async def test_a_hint_for_a_job_that_nobody_watches_costs_no_query(database: Database) -> None:
    tailer = Tailer(database, NEVER_S)
    tailer.hint(f"{short_id(uuid.uuid4())}:5")
    assert not tailer._dirty
