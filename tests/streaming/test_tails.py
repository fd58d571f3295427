"""Tails: a window on the end of one log, without a hole, bounded in bytes."""

from __future__ import annotations

from uuid import uuid4

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.frames import frame
from gateway.tails import TAIL_BYTES, Tail
from gateway.wheel import Pulse
from schema.errors import LogBroken
from schema.events import Event, EventKind
from tests.support.streams import parse

pytestmark = pytest.mark.anyio


def _chunks(first: int, count: int, size: int = 1) -> list[Event]:
    return [Event(seq, EventKind.CHUNK, 1, "x" * size) for seq in range(first, first + count)]


def _end(seq: int) -> Event:
    return Event(seq, EventKind.SUCCEEDED, 1, "{}")


async def test_before_it_begins_it_reaches_nowhere() -> None:
    tail = Tail(uuid4())
    assert tail.after(0) is None
    assert tail.seed(4)
    assert not tail.seed(7)
    assert tail.after(3) is None
    assert tail.last == 4


async def test_each_cursor_gets_exactly_what_follows() -> None:
    tail = Tail(uuid4())
    tail.seed(2)
    tail.extend(_chunks(3, 5))
    for cursor in range(2, 8):
        block = tail.after(cursor)
        assert block is not None
        assert [each.id for each in parse(block.frames)] == list(range(cursor + 1, 8))
        assert block.last_seq == 7
        assert not block.finished


async def test_a_reader_ahead_of_the_tail_waits_and_is_given_nothing_twice() -> None:
    tail = Tail(uuid4())
    tail.seed(2)
    block = tail.after(5)
    assert block is not None
    assert (block.frames, block.last_seq, block.finished) == (b"", 5, False)
    tail.extend(_chunks(3, 4))
    block = tail.after(5)
    assert block is not None
    assert [each.id for each in parse(block.frames)] == [6]


@pytest.mark.parametrize("first", [4, 2])
async def test_a_hole_or_a_repetition_is_refused(first: int) -> None:
    tail = Tail(uuid4())
    tail.seed(2)
    with pytest.raises(LogBroken):
        tail.extend(_chunks(first, 1))


async def test_the_end_is_the_end_for_who_has_all() -> None:
    tail = Tail(uuid4())
    tail.seed(2)
    tail.extend([*_chunks(3, 1), _end(4)])
    for cursor, frames in ((2, 2), (3, 1), (4, 0)):
        block = tail.after(cursor)
        assert block is not None
        assert block.finished
        assert len(parse(block.frames)) == frames


@given(sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=60), at_once=st.integers(1, 9))
def test_it_is_bounded_in_bytes_and_never_has_a_hole(sizes: list[int], at_once: int) -> None:
    """Invariant 7: memory by what is watched; who fell behind is told so and reads the table."""
    tail = Tail(uuid4())
    tail.seed(0)
    events = [Event(seq, EventKind.CHUNK, 1, "x" * size) for seq, size in enumerate(sizes, 1)]
    for start in range(0, len(events), at_once):
        tail.extend(events[start : start + at_once])
        kept = sum(map(len, tail._frames))
        assert kept == tail._size_bytes <= TAIL_BYTES
    for cursor in range(len(events) + 1):
        block = tail.after(cursor)
        expected = b"".join(map(frame, events[cursor:]))
        assert block.frames == expected if block else len(expected) > TAIL_BYTES // 4
    assert tail.after(len(events)) is not None


async def test_readers_at_one_place_share_one_block() -> None:
    tail = Tail(uuid4())
    tail.seed(0)
    tail.extend(_chunks(1, 3))
    assert tail.after(1) is tail.after(1)
    before = tail.after(1)
    tail.extend(_chunks(4, 1))
    after = tail.after(1)
    assert before is not None
    assert after is not None
    assert len(parse(after.frames)) == len(parse(before.frames)) + 1


async def test_a_forgotten_tail_begins_anew_where_it_is_told() -> None:
    tail = Tail(uuid4())
    tail.seed(0)
    tail.extend(_chunks(1, 3))
    reader = Pulse()
    tail.readers.add(reader)
    tail.forget()
    with anyio.fail_after(1):
        await reader.wait()
    assert tail.after(3) is None
    assert tail.seed(3)
    tail.extend(_chunks(4, 1))
    assert tail.after(2) is None
    block = tail.after(3)
    assert block is not None
    assert [each.id for each in parse(block.frames)] == [4]


async def test_news_wake_all_readers_that_looked_before() -> None:
    tail = Tail(uuid4())
    tail.seed(0)
    readers = [Pulse() for _ in range(3)]
    tail.readers.update(readers)
    for reader in readers:
        reader.look()
    tail.extend(_chunks(1, 1))
    with anyio.fail_after(1):
        for reader in readers:
            await reader.wait()
