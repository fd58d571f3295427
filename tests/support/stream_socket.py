"""The socket under the strict reader: every read has a limit in time, and the whole one in bytes."""

from __future__ import annotations

import asyncio
import time

import anyio

from tests.support.sse_frames import broken

# A heartbeat comes after 15 s of silence; the rest is for a busy machine.
SILENCE_S = 20.0
_READ_BYTES = 256 * 1024


class StreamCut(Exception):
    """The connection ended in the middle of the body, by our own cut or from outside."""


class StreamSocket:
    """The socket, with a budget of bytes after which it is cut."""

    def __init__(self, ends: tuple[asyncio.StreamReader, asyncio.StreamWriter], cut_after: int | None) -> None:
        self._reader, self._writer = ends
        self._left = cut_after
        self._unread = b""
        self._sent_at = time.monotonic()
        self.bytes_read = 0
        self.first_byte_s = 0.0

    async def send(self, request: bytes) -> None:
        self._sent_at = time.monotonic()
        self._writer.write(request)
        await self._writer.drain()

    async def read(self) -> bytes:
        """At least one byte; StreamCut at the end, since only a chunked body can say that it is complete."""
        if self._unread:
            unread, self._unread = self._unread, b""
            return unread
        if self._left == 0:
            await self.abort()
            raise StreamCut(f"cut by the test after {self.bytes_read} bytes")
        data = await self._receive(_READ_BYTES if self._left is None else min(self._left, _READ_BYTES))
        if not self.bytes_read:
            self.first_byte_s = time.monotonic() - self._sent_at
        self.bytes_read += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    async def _receive(self, at_most: int) -> bytes:
        try:
            async with asyncio.timeout(SILENCE_S):
                data = await self._reader.read(at_most)
        except TimeoutError:
            raise broken("no byte, not even a heartbeat, for seconds", SILENCE_S) from None
        except OSError as error:
            raise StreamCut(f"the connection broke after {self.bytes_read} bytes") from error
        if not data:
            raise StreamCut(f"the connection ended after {self.bytes_read} bytes")
        return data

    async def read_to(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            data += await self.read()
        found, _, self._unread = data.partition(mark)
        return found

    async def read_exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += await self.read()
        return data

    async def abort(self) -> None:
        """Returns when the socket is closed, so that no test leaves a transport behind."""
        self._writer.transport.abort()
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            try:
                await self._writer.wait_closed()
            except OSError:
                return
