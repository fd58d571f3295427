"""Bytes of an event stream to events, refusing what docs/protocol.md does not allow. No socket, no clock.

Hypothesis runs this hundreds of times over whole jobs, so a frame costs a few microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tests.support.event_rules import OUTSIDE_THE_LOG, RULES, TERMINAL

# "Lines stay under 64 KiB"; three lines and their names make a frame.
MAX_LINE_BYTES = 64 * 1024
# "retry: once at the start, 1000 to 3000 and more the more streams a gateway holds"
MIN_RETRY_MS = 1000
# NUL, then U+2028, U+2029 and U+0085, which some readers take for the end of a line.
FORBIDDEN = (b"\0", b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85")

_ORDERS = ([b"event", b"id", b"data"], [b"event", b"data"])


class ProtocolBroken(AssertionError):
    """The server broke a rule of the contract; the message says which and shows the bytes."""


def broken(rule: str, shown: object) -> ProtocolBroken:
    text = repr(shown)
    return ProtocolBroken(f"{rule}: {text if len(text) < 600 else text[:600] + '...'}")


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `cursor` is its id, None where it is not part of the log."""

    name: str
    cursor: int | None
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        return self.name in TERMINAL


class Frames:
    """Feed it the body in any pieces; it gives whole events and remembers how far the log has come.

    `cursor`: the id that the reader had before. `snapshot_gaps`: `snapshot` may jump over what it stands for.
    """

    def __init__(self, cursor: int = 0, *, snapshot_gaps: bool = False) -> None:
        self.cursor = cursor
        self.retry_ms: int | None = None
        self.last: Event | None = None
        self._snapshot_gaps = snapshot_gaps
        self._rest = b""

    @property
    def may_end(self) -> bool:
        """True once the stream may end cleanly: after a terminal event or `reconnect`."""
        return self.last is not None and (self.last.is_terminal or self.last.name == "reconnect")

    def feed(self, body: bytes) -> list[Event]:
        if b"\r" in body:
            # Seen here, since with it no frame would ever be whole.
            raise broken("CR on the wire", body)
        *frames, self._rest = (self._rest + body).split(b"\n\n")
        if len(self._rest) > 4 * MAX_LINE_BYTES:
            raise broken("a frame does not end", self._rest[:200])
        events = [self._event(frame) for frame in frames]
        return [event for event in events if event is not None]

    def end(self) -> None:
        """The body ended cleanly."""
        if self._rest:
            raise broken("the body ended inside a frame", self._rest)
        if not self.may_end:
            raise broken("a clean end without a terminal event or reconnect, after", self.last)

    def _event(self, frame: bytes) -> Event | None:
        if self.may_end:
            raise broken(f"a frame after {self.last}", frame)
        for forbidden in FORBIDDEN:
            if forbidden in frame:
                raise broken(f"{forbidden!r} on the wire", frame)
        fields = [_field(line) for line in frame.split(b"\n")]
        retry_ms = self._take_retry(fields, frame)
        if not fields:
            return None
        if [name for name, _ in fields] not in _ORDERS:
            raise broken("not event, id, one data in this order", frame)
        event = self._checked(dict(fields), frame)
        if event.name == "reconnect" and retry_ms != event.data["retry_ms"]:
            raise broken("reconnect without a retry line of the same number", frame)
        if event.name != "reconnect" and retry_ms is not None and self.last is not None:
            raise broken("retry again in mid-stream", frame)
        self.last = event
        return event

    def _take_retry(self, fields: list[tuple[bytes, bytes]], frame: bytes) -> int | None:
        values = [value for name, value in fields if name == b"retry"]
        if not values:
            if self.retry_ms is None:
                raise broken("the stream did not start with retry", frame)
            return None
        if len(values) > 1 or not values[0].isdigit() or int(values[0]) < MIN_RETRY_MS:
            raise broken(f"retry is one number of at least {MIN_RETRY_MS} ms", frame)
        fields[:] = [field for field in fields if field[0] != b"retry"]
        if self.retry_ms is not None and not fields:
            raise broken("retry again in mid-stream", frame)
        self.retry_ms = int(values[0])
        return self.retry_ms

    def _checked(self, fields: dict[bytes, bytes], frame: bytes) -> Event:
        name = _text(fields[b"event"], frame)
        rule = RULES.get(name)
        if rule is None:
            raise broken("an event that the contract does not know", frame)
        data = _json(fields[b"data"], frame)
        if not isinstance(data, dict) or not rule(data):
            raise broken(f"not the data of {name}", frame)
        if (b"id" in fields) == (name in OUTSIDE_THE_LOG):
            raise broken("heartbeat and reconnect have no id, all others have one", frame)
        return Event(name, self._advance(name, fields[b"id"], frame) if b"id" in fields else None, data)

    def _advance(self, name: str, id_: bytes, frame: bytes) -> int:
        if not id_.isdigit() or id_.startswith(b"0") or len(id_) > 20:
            raise broken("an id is a decimal number from 1, without leading zeros", frame)
        cursor = int(id_)
        may_jump = self._snapshot_gaps and name == "snapshot" and cursor > self.cursor
        if cursor != self.cursor + 1 and not may_jump:
            raise broken(f"id {cursor} after {self.cursor}", frame)
        self.cursor = cursor
        return cursor


def _field(line: bytes) -> tuple[bytes, bytes]:
    if len(line) >= MAX_LINE_BYTES:
        raise broken(f"a line of {len(line)} bytes", line[:100])
    name, colon, value = line.partition(b": ")
    if not colon or name not in (b"event", b"id", b"data", b"retry"):
        raise broken("not a line of the form 'event: ', 'id: ', 'data: ' or 'retry: '", line)
    return name, value


def _text(value: bytes, frame: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise broken("not UTF-8", frame) from error


def _json(value: bytes, frame: bytes) -> object:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise broken(f"data is not JSON ({error})", frame) from error
