"""Events from bytes: wherever the network cuts them, whatever ends their lines."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.providers.frames import MAX_FRAME_BYTES, FrameReader, FrameTooLargeError

STREAM = (
    b": hi\n\ndata: one\nid: 3\n\nevent: x\ndata:two\ndata: lines\n\n\n\nretry: 5\n\ndata: \xd0\xb6\n\ndata: end\n\n"
)
EVENTS = [b"one", b"two\nlines", "ж".encode(), b"end"]


@given(
    cuts=st.lists(st.integers(0, 200), max_size=30),
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_any_cut_gives_the_same_events(cuts: list[int], newline: bytes, mark: bytes) -> None:
    stream = mark + STREAM.replace(b"\n", newline)
    places = [0, len(mark), *sorted(min(cut + len(mark), len(stream)) for cut in cuts), len(stream)]
    reader = FrameReader()
    chunks = [stream[: places[1]] + stream[places[1] : places[2]]]
    chunks += [stream[a:b] for a, b in pairwise(places[2:])]
    assert [frame for chunk in chunks for frame in reader.feed(chunk)] == EVENTS


def test_a_long_line_in_small_parts_is_linear() -> None:
    reader = FrameReader()
    began = time.monotonic()
    reader.feed(b"data: ")
    for _ in range(60_000):
        assert reader.feed(b"x" * 100) == []
    assert len(reader.feed(b"\n\n")[0]) == 6_000_000
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("part", [b"x" * 65_536, b"data: y\n" * 8_192], ids=["one line", "many lines"])
def test_an_endless_event_is_refused(part: bytes) -> None:
    reader = FrameReader()
    reader.feed(b"data: ")
    for _ in range(MAX_FRAME_BYTES // len(part) - 1):
        reader.feed(part)
    with pytest.raises(FrameTooLargeError):
        reader.feed(part * 2)


def test_many_events_are_no_large_event() -> None:
    reader = FrameReader()
    count = sum(len(reader.feed(b"data: " + b"x" * 1_000_000 + b"\n\n")) for _ in range(20))
    assert count == 20


def test_only_done_may_lack_its_blank_line() -> None:
    reader = FrameReader()
    assert reader.feed(b"data: one\n\ndata: [DONE]\n") == [b"one"]
    assert reader.rest() == [b"[DONE]"]
    reader = FrameReader()
    assert reader.feed(b"data: hal") == []
    assert reader.rest() == []
