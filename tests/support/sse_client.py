"""A strict reader of event streams over a raw socket: it sees each byte, and raises at the first broken rule.

    async with open_stream(url, last_event_id=reader.cursor) as stream:
        async for event in stream:
            reader.take(event)

A cut raises StreamCut, an answer other than 200 and 204 StreamRefused, a broken rule ProtocolBroken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from tests.support.http_wire import Chunks, Head, parse_head
from tests.support.reader import Reader
from tests.support.sse_frames import Event, Frames, broken
from tests.support.stream_socket import StreamCut, StreamSocket

__all__ = ["EventStream", "StreamCut", "StreamRefused", "open_stream", "read_to_end"]

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
    "transfer-encoding": "chunked",
}
_FORBIDDEN_HEADERS = ("content-encoding", "content-length")


class StreamRefused(Exception):
    """An answer that is no stream. `problem` is its problem+json."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(f"refused with {status}: {problem}")
        self.status = status
        self.problem = problem
        self.code = problem.get("code")


class EventStream:
    """One connection. `status` is 200, or 204 where the reader was at the end; then it has no events.

    `bytes_read` counts from the first byte of the answer; `first_byte_s` is how long that took.
    """

    def __init__(self, wire: StreamSocket, frames: Frames) -> None:
        self._wire = wire
        self._frames = frames
        self._chunks = Chunks()
        self._ready: list[Event] = []
        self.head = Head(0, {})

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def cursor(self) -> int:
        return self._frames.cursor

    @property
    def retry_ms(self) -> int | None:
        return self._frames.retry_ms

    @property
    def bytes_read(self) -> int:
        return self._wire.bytes_read

    @property
    def first_byte_s(self) -> float:
        return self._wire.first_byte_s

    async def start(self, request: bytes) -> None:
        await self._wire.send(request)
        self.head = parse_head(await self._wire.read_to(b"\r\n\r\n"))
        if self.status == 200:
            _check_headers(self.head)
        elif self.status != 204:
            raise StreamRefused(self.status, await self._problem())

    async def cut(self) -> None:
        """Breaks the connection off at once, without a goodbye."""
        await self._wire.abort()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._is_over():
                raise StopAsyncIteration
            self._ready = self._frames.feed(self._chunks.feed(await self._wire.read()))
            self._ready.reverse()
            if self._chunks.ended:
                self._frames.end()
        return self._ready.pop()

    def _is_over(self) -> bool:
        return self.status == 204 or self._chunks.ended

    async def _problem(self) -> dict[str, Any]:
        length = int(self.head.headers.get("content-length", "0"))
        if self.head.headers.get("content-type") != "application/problem+json":
            raise broken(f"{self.status} without application/problem+json", self.head.headers)
        problem = orjson.loads(await self._wire.read_exactly(length))
        if problem.get("status") != self.status or not isinstance(problem.get("code"), str):
            raise broken(f"{self.status} with a problem of another status or no code", problem)
        return dict(problem)


def _check_headers(head: Head) -> None:
    for name, value in _HEADERS.items():
        if head.headers.get(name) != value:
            raise broken(f"{name} is not exactly {value!r}", head.headers.get(name))
    for name in _FORBIDDEN_HEADERS:
        if name in head.headers:
            raise broken(f"a stream has no {name}", head.headers[name])


@asynccontextmanager
async def open_stream(
    url: str,
    *,
    last_event_id: int | None = None,
    headers: Mapping[str, str] | None = None,
    cut_after: int | None = None,
    snapshot_gaps: bool = False,
) -> AsyncIterator[EventStream]:
    """Connects to `url` (http, absolute), checks the answer's head, gives the stream, closes the socket.

    `last_event_id` goes into the header, 0 and None not at all; it is also what the first id has to follow.
    `cut_after`: the connection breaks off after that many bytes of the answer, head included.
    """
    parts = urlsplit(url)
    wire = StreamSocket(await asyncio.open_connection(parts.hostname, parts.port), cut_after)
    stream = EventStream(wire, Frames(last_event_id or 0, snapshot_gaps=snapshot_gaps))
    try:
        await stream.start(_request(url, last_event_id, headers or {}))
        yield stream
    finally:
        await wire.abort()


def _request(url: str, last_event_id: int | None, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    sent = {"Host": parts.netloc, "Accept": "text/event-stream", **headers}
    if last_event_id:
        sent["Last-Event-ID"] = str(last_event_id)
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def read_to_end(
    url: str,
    reader: Reader | None = None,
    *,
    cuts: Iterable[int] = (),
    headers: Mapping[str, str] | None = None,
    snapshot_gaps: bool = False,
) -> Reader:
    """Follows a job to its end, resuming after each cut, then asks once more: the answer has to be 204.

    `cuts`: after how many bytes each connection in turn breaks off; after the last of them none does.
    The caller bounds the time (anyio.fail_after).
    """
    reader = reader or Reader()
    planned = iter(cuts)
    while True:
        options = {"headers": headers, "snapshot_gaps": snapshot_gaps, "cut_after": next(planned, None)}
        try:
            async with open_stream(url, last_event_id=reader.cursor, **options) as stream:  # type: ignore[arg-type]
                async for event in stream:
                    reader.take(event)
                if stream.status == 204:
                    return _at_the_end(reader)
        except StreamCut:
            continue


def _at_the_end(reader: Reader) -> Reader:
    if not reader.finished:
        raise broken("204 before the terminal event, at id", reader.cursor)
    return reader
