"""The strict reader's rules, each broken once, and the reference reader's text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.http_wire import Chunks, parse_head
from tests.support.reader import Reader
from tests.support.scripted_server import chunked
from tests.support.sse_frames import Event, Frames, ProtocolBroken

RETRY = b"retry: 1234\n\n"
DONE = {"status": "succeeded", "attempt": 1, "result": {"text": "a"}}


def frame(name: str, id_: int | None, data: Any) -> bytes:
    line = b"" if id_ is None else b"id: %d\n" % id_
    return f"event: {name}\n".encode() + line + b"data: " + json.dumps(data).encode() + b"\n\n"


GOOD = (
    RETRY
    + frame("status", 1, {"status": "queued"})
    + frame("attempt", 2, {"attempt": 1, "resumes_after": 0, "reason": "started"})
    + frame("heartbeat", None, {})
    + frame("chunk", 3, {"text": "a"})
    + frame("succeeded", 4, DONE)
)


def test_a_good_stream_passes_in_any_pieces() -> None:
    whole, bytewise = Frames(), Frames()
    events = whole.feed(GOOD)
    assert [event.name for event in events] == ["status", "attempt", "heartbeat", "chunk", "succeeded"]
    assert [event.cursor for event in events] == [1, 2, None, 3, 4]
    assert [e for at in range(len(GOOD)) for e in bytewise.feed(GOOD[at : at + 1])] == events
    whole.end()
    assert (whole.retry_ms, whole.cursor) == (1234, 4)


def test_a_reconnect_ends_a_stream_with_its_own_retry() -> None:
    frames = Frames()
    reconnect = b'event: reconnect\nretry: 2500\ndata: {"reason":"draining","retry_ms":2500}\n\n'
    frames.feed(RETRY + reconnect)
    frames.end()
    assert frames.retry_ms == 2500


def test_a_snapshot_may_jump_only_where_it_is_expected() -> None:
    snapshot = RETRY + frame("snapshot", 9, {"text": "abc", "attempt": 1})
    assert Frames(2, snapshot_gaps=True).feed(snapshot)[0].cursor == 9
    with pytest.raises(ProtocolBroken, match="id 9 after 2"):
        Frames(2).feed(snapshot)
    with pytest.raises(ProtocolBroken, match="id 9 after 9"):
        Frames(9, snapshot_gaps=True).feed(snapshot)


STATUS = frame("status", 1, {"status": "queued"})
RECONNECT = frame("reconnect", None, {"reason": "max_age", "retry_ms": 1})
LATE = frame("heartbeat", None, {})
BROKEN = {
    "carriage return": (STATUS.replace(b"\n", b"\r\n"), "on the wire"),
    "raw line separator": (frame("chunk", 1, {"text": "x"}).replace(b"x", "\u2028".encode()), "on the wire"),
    "raw next line": (frame("chunk", 1, {"text": "x"}).replace(b"x", "\x85".encode()), "on the wire"),
    "raw nul": (frame("chunk", 1, {"text": "x"}).replace(b"x", b"\0"), "on the wire"),
    "not utf-8": (frame("chunk", 1, {"text": "x"}).replace(b"x", b"\xff"), "JSON"),
    "id before event": (b'id: 1\nevent: status\ndata: {"status":"queued"}\n\n', "in this order"),
    "data before id": (b'event: status\ndata: {"status":"queued"}\nid: 1\n\n', "in this order"),
    "two data lines": (b'event: status\nid: 1\ndata: {"status":\ndata: "queued"}\n\n', "in this order"),
    "no event line": (b"id: 1\ndata: {}\n\n", "in this order"),
    "no space after the colon": (STATUS.replace(b"id: ", b"id:"), "not a line of the form"),
    "a comment": (b": ping\n\n", "not a line of the form"),
    "an unknown field": (b"x: 1\n" + STATUS, "not a line of the form"),
    "an empty frame": (b"\n\n" + STATUS, "not a line of the form"),
    "data is no JSON": (b"event: status\nid: 1\ndata: {queued}\n\n", "not JSON"),
    "data is no object": (b"event: chunk\nid: 1\ndata: []\n\n", "not the data of chunk"),
    "wrong data": (frame("status", 1, {"status": "running"}), "not the data of status"),
    "heartbeat with data": (frame("heartbeat", None, {"n": 1}), "not the data of heartbeat"),
    "an unknown event": (frame("error", 1, {}), "contract does not know"),
    "id 0": (frame("status", 0, {"status": "queued"}), "decimal number"),
    "a leading zero": (STATUS.replace(b"id: 1", b"id: 01"), "decimal number"),
    "a signed id": (STATUS.replace(b"id: 1", b"id: +1"), "decimal number"),
    "a gap": (STATUS + frame("chunk", 3, {"text": "a"}), "id 3 after 1"),
    "a doubled id": (STATUS + STATUS, "id 1 after 1"),
    "a log event without id": (frame("chunk", None, {"text": "a"}), "have no id"),
    "a heartbeat with id": (frame("heartbeat", 1, {}), "have no id"),
    "an event after the end": (frame("succeeded", 1, DONE) + STATUS, "a frame after"),
    "a heartbeat after the end": (frame("succeeded", 1, DONE) + LATE, "a frame after"),
    "retry again": (STATUS + RETRY, "retry again"),
    "retry in an event": (STATUS + b"retry: 1500\n" + frame("chunk", 2, {"text": "a"}), "retry again"),
    "retry too short": (b"retry: 10\n\n", "at least"),
    "reconnect without retry": (RECONNECT, "same number"),
    "result and result_url": (frame("succeeded", 1, {**DONE, "result_url": "/x"}), "not the data of"),
    "a long line": (frame("chunk", 1, {"text": "x" * 65536}), "a line of"),
    "an endless line": (b"event: chunk\nid: 1\ndata: " + b"x" * 300_000, "does not end"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_rule_is_named(name: str) -> None:
    body, message = BROKEN[name]
    with pytest.raises(ProtocolBroken, match=message):
        Frames().feed(RETRY + body)


def test_a_stream_has_to_start_with_retry() -> None:
    with pytest.raises(ProtocolBroken, match="did not start with retry"):
        Frames().feed(STATUS)


@pytest.mark.parametrize(("body", "message"), [(STATUS, "without a terminal event"), (STATUS[:-1], "inside a")])
def test_a_clean_end_needs_a_last_event(body: bytes, message: str) -> None:
    frames = Frames()
    frames.feed(RETRY + body)
    with pytest.raises(ProtocolBroken, match=message):
        frames.end()


def _chunk(id_: int, text: str, **more: str) -> Event:
    return Event("chunk", id_, {"text": text, **more})


def _attempt(id_: int, number: int, resumes_after: int, reason: str) -> Event:
    return Event("attempt", id_, {"attempt": number, "resumes_after": resumes_after, "reason": reason})


def test_an_attempt_makes_void_what_came_after_its_resumption() -> None:
    reader = Reader()
    for event in (
        _attempt(1, 1, 0, "started"),
        _chunk(2, "kept "),
        Event("progress", 3, {"done": 1, "total": 2}),
        _chunk(4, "void "),
        _chunk(5, "thought", channel="reasoning"),
        _attempt(6, 2, 3, "lease_expired"),
        _chunk(7, "new"),
        Event("succeeded", 8, {"status": "succeeded", "attempt": 2, "result": {"text": "kept new"}}),
    ):
        reader.take(event)
    assert (reader.text, reader.channel("reasoning"), reader.values) == (
        "kept new",
        "",
        [{"done": 1, "total": 2}],
    )
    assert reader.result["text"] == reader.text
    assert (reader.ids, reader.cursor, reader.finished) == (list(range(1, 9)), 8, True)
    with pytest.raises(ProtocolBroken):
        reader.take(_chunk(9, "late"))


def test_a_snapshot_replaces_the_text_and_no_channel() -> None:
    reader = Reader()
    for event in (_chunk(1, "a"), _chunk(2, "r", channel="reasoning")):
        reader.take(event)
    reader.take(Event("snapshot", 5, {"text": "abc", "attempt": 1}))
    assert (reader.text, reader.channel("reasoning")) == ("abc", "r")


@pytest.mark.parametrize(
    "event",
    [
        _attempt(3, 1, 0, "released"),
        _attempt(3, 2, 3, "released"),
        _attempt(3, 2, 0, "started"),
        _chunk(2, "again"),
    ],
)
def test_what_cannot_follow_is_refused(event: Event) -> None:
    reader = Reader()
    reader.take(_attempt(1, 1, 0, "started"))
    reader.take(_chunk(2, "a"))
    with pytest.raises(ProtocolBroken):
        reader.take(event)


@given(body=st.binary(max_size=200), size=st.integers(1, 50), cut=st.integers(1, 20))
def test_chunks_give_the_body_back_however_it_is_cut(body: bytes, size: int, cut: int) -> None:
    chunks, raw = Chunks(), chunked(body, size)
    assert b"".join(chunks.feed(raw[at : at + cut]) for at in range(0, len(raw), cut)) == body
    assert chunks.ended


@pytest.mark.parametrize("raw", [b"zz\r\n", chunked(b"a") + b"more"])
def test_broken_chunks_are_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        Chunks().feed(raw)


@pytest.mark.parametrize("raw", [b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2", b"HTTP/1.1 200 OK\r\nA"])
def test_a_malformed_head_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        parse_head(raw)
