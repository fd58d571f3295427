"""A small HTTP server that keeps every request it got and knows when a client is gone.

Written on sockets, because no web framework breaks off in the middle of a byte sequence when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

from scripted_provider.exchange import Cut, Exchange, Request

# A header line or a body beyond it is none that a test or a demo sends.
MOST_BYTES = 64 * 1024 * 1024


class Server:
    """One connection, one request, one answer; an async context manager that ends all of them when it is left."""

    def __init__(self, answer: Callable[[Exchange], Awaitable[None]], port: int = 0) -> None:
        self.requests: list[Request] = []
        self.port = port
        self._answer = answer
        self._releases = asyncio.Semaphore(0)
        self._arrivals = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def release(self, times: int = 1) -> None:
        """Lets `times` waits of scripts pass, also ones that have not begun."""
        for _ in range(times):
            self._releases.release()

    async def arrived(self, count: int) -> list[Request]:
        """Waits until that many requests came in all."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, limit=MOST_BYTES, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_request(reader)
        self.requests.append(request)
        async with self._arrivals:
            self._arrivals.notify_all()
        watcher = asyncio.create_task(_watch(reader, request))
        try:
            # A client that has left is told nothing more, and its script is over like any other.
            with contextlib.suppress(Cut, ConnectionError):
                await self._answer(Exchange(request, writer, self._releases.acquire))
            request.answered.set()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)


async def _watch(reader: asyncio.StreamReader, request: Request) -> None:
    """Notes that the client is gone: nothing more is to come from it but the end of its side."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    request.gone.set()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)
