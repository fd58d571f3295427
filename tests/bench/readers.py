"""Many readers in one process: raw sockets and a parser that does little, so that the client is not what is measured.

It shares the machine with what it measures; its own share of CPU is reported beside the figures.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from tests.bench.stamps import Arrivals, stamps_in

_FRAME = re.compile(rb"event: ([a-z_]+)\n(?:id: (\d+)\n)?data: ([^\n]*)\n\n")
_ENDS = (b"succeeded", b"failed", b"cancelled")


class Reader(asyncio.Protocol):
    """One stream. Chunked framing is read over: a frame of ours never stands across two HTTP chunks."""

    def __init__(self, host: str, path: str, arrivals: Arrivals, last_id: int = 0) -> None:
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n"
            f"{f'Last-Event-ID: {last_id}' if last_id else 'X-From: start'}\r\n\r\n"
        ).encode()
        self._arrivals = arrivals
        self._last_id = last_id
        self._buffer = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.opened.done():
            self.opened.set_result(None)
        self._buffer += data
        end = 0
        for match in _FRAME.finditer(self._buffer):
            end = match.end()
            self._take(match, now)
        self._buffer = self._buffer[end:]

    def _take(self, match: "re.Match[bytes]", now: int) -> None:
        if match[2]:
            seq = int(match[2])
            self._arrivals.gaps += seq != self._last_id + 1
            self._last_id = seq
            self._arrivals.events.append((seq, now))
        self._arrivals.pieces.extend((made, now) for made in stamps_in(match[3]))
        if match[1] in _ENDS:
            self._arrivals.finished = True
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.opened, self.ended):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Leave."""
        assert self.transport is not None
        self.transport.close()


async def open_readers(urls: Sequence[str], last_id: int = 0) -> list[tuple[Reader, Arrivals]]:
    """One reader for each URL, each with its response begun; 50 are being opened at once."""
    turns = asyncio.Semaphore(50)

    async def one(url: str) -> tuple[Reader, Arrivals]:
        parts = urlsplit(url)
        arrivals = Arrivals()
        async with turns:
            loop = asyncio.get_running_loop()
            _, reader = await loop.create_connection(
                lambda: Reader(parts.netloc, f"{parts.path}?{parts.query}", arrivals, last_id),
                parts.hostname or "",
                parts.port or 80,
            )
            await reader.opened
        return reader, arrivals

    return list(await asyncio.gather(*(one(url) for url in urls)))
