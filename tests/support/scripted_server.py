"""An HTTP server that answers each connection with bytes a test chose: to try the reader, not the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store, no-transform\r\n"
    b"X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
)
NO_CONTENT = b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n"


def chunked(body: bytes, size: int = 1 << 20, *, ended: bool = True) -> bytes:
    """`body` as HTTP chunks of `size` bytes, with or without the last one, that makes a clean end."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n" * ended


@asynccontextmanager
async def serve(answer: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """"""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
