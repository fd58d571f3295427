"""Events as bytes on the wire: `event:`, `id:`, one `data:` line, a blank line, LF only (docs/protocol.md 4).

A frame is encoded once and shared by all who read it. Only what stands in the log has an id.
"""

import random
from typing import Any, Final

import orjson

from schema.events import Event, EventKind
from schema.json_line import json_line

HEARTBEAT: Final = b"event: heartbeat\ndata: {}\n\n"

_NAMES = {kind: kind.value.encode() for kind in EventKind} | {EventKind.CHANNEL: b"chunk"}

RETRY_LEAST_MS = 1000
RETRY_MOST_MS = 3000


def data_line(event: Event) -> bytes:
    """The event's data as one line of JSON; a chunk is stored as its bare text."""
    if event.kind is EventKind.CHUNK:
        return json_line({"text": event.data})
    return event.data.encode()


def frame(event: Event) -> bytes:
    """One event of the log."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (_NAMES[event.kind], event.seq, data_line(event))


def data_object(event: Event) -> dict[str, Any]:
    """The event for a reader of JSON, with the same name, id and data as on the stream."""
    return {"id": event.seq, "event": _NAMES[event.kind].decode(), "data": orjson.loads(data_line(event))}


def retry_ms(streams: int) -> int:
    """How long a reader should wait before it comes back: different for each, longer the more there are.

    With a millisecond more for each stream, those of a full gateway come back over 20 s instead of all at once.
    """
    return random.randint(RETRY_LEAST_MS, RETRY_MOST_MS + streams)  # noqa: S311 - spreads load, keeps no secret


def opening(retry: int) -> bytes:
    """The first bytes of a stream, so that proxies and readers see at once that it is there."""
    return b"retry: %d\n\n" % retry


def reconnect(reason: str, retry: int) -> bytes:
    """The last frame of a stream that ends before its log: come back after `retry` ms and go on."""
    data = orjson.dumps({"reason": reason, "retry_ms": retry})
    return b"retry: %d\nevent: reconnect\ndata: %b\n\n" % (retry, data)
