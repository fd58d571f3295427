"""A TCP proxy on loopback that delays, dribbles, freezes and cuts, between any client and HTTP or PostgreSQL.

async with proxy_to(database_url) as proxy:
    ...  # use proxy.url
    proxy.freeze()
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

How = Literal["rst", "fin"]
Target = tuple[str, int] | str

_PIECE_BYTES = 64 * 1024
_DEFAULT_PORTS = {"http": 80, "postgresql": 5432, "postgres": 5432}


@dataclass(slots=True)
class _Cut:
    after: int
    how: How


class _Connection:
    """One client and its connection to the target."""

    def __init__(self, client: asyncio.StreamWriter, cut: _Cut | None) -> None:
        self.writers = [client]
        self.cut = cut
        self.down_bytes = 0

    def end(self, how: How) -> None:
        for writer in self.writers:
            if how == "rst":
                linger_none = struct.pack("ii", 1, 0)
                with suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)
                writer.transport.abort()
            else:
                writer.close()


class Proxy:
    """`url` leads through it. What is set holds for bytes that have not passed yet, in both directions.

    `delay_s`: each piece waits so long. `dribble`: one byte at a time. `accepted`: connections so far.
    """

    def __init__(self, target: Target) -> None:
        self.url = ""
        self.delay_s = 0.0
        self.dribble = False
        self.accepted = 0
        self._target = target
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cuts: deque[_Cut] = deque()
        self._live: set[_Connection] = set()

    @property
    def connections(self) -> int:
        return len(self._live)

    def freeze(self) -> None:
        """Like a black hole: connections stay open and new ones are accepted, but no byte and no end passes."""
        self._flowing.clear()

    def thaw(self) -> None:
        """What was held back passes, in order."""
        self._flowing.set()

    def cut(self, how: How = "rst") -> None:
        """Ends all connections now, on both sides."""
        for connection in list(self._live):
            connection.end(how)

    def cut_next_after(self, byte: int, how: How = "rst") -> None:
        """The next connection that is accepted ends once `byte` bytes went to its client. Calls queue up."""
        self._cuts.append(_Cut(byte, how))

    async def carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, from its acceptance until both directions have ended."""
        self.accepted += 1
        connection = _Connection(to_client, self._cuts.popleft() if self._cuts else None)
        self._live.add(connection)
        try:
            await self._flowing.wait()
            from_target, to_target = await _connect(self._target)
            connection.writers.append(to_target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(from_client, to_target, connection))
                both.create_task(self._pump(from_target, to_client, connection))
        except OSError:
            connection.end("rst")
        finally:
            connection.end("fin")
            self._live.discard(connection)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: _Connection) -> None:
        downwards = sink is connection.writers[0]
        # So that drain returns only when the kernel has all: a cut may not swallow what came before it.
        sink.transport.set_write_buffer_limits(0)
        try:
            while data := await source.read(_PIECE_BYTES):
                await self._flowing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._forward(data, sink, connection if downwards else None)
            await self._flowing.wait()
            if sink.can_write_eof():
                sink.write_eof()
        except OSError:
            connection.end("rst")

    async def _forward(self, data: bytes, sink: asyncio.StreamWriter, down: _Connection | None) -> None:
        cut = down.cut if down else None
        allowed = data[: cut.after - down.down_bytes] if cut and down else data
        for at in range(0, len(allowed), 1 if self.dribble else _PIECE_BYTES):
            sink.write(allowed[at : at + 1] if self.dribble else allowed)
            await sink.drain()
            await asyncio.sleep(0)
        if down:
            down.down_bytes += len(allowed)
            if cut and down.down_bytes >= cut.after:
                down.end(cut.how)


async def _connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, str):
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection(*target)


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[Proxy]:
    """In front of the server that `url` names: http, or postgresql by TCP or by a Unix socket (`?host=/dir`)."""
    proxy = Proxy(target_of(url))
    async with asyncio.TaskGroup() as carried:
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = carried.create_task(proxy.carry(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        proxy.url = through(url, server.sockets[0].getsockname()[1])
        try:
            yield proxy
        finally:
            server.close()
            proxy.cut()
            for task in tasks:
                task.cancel()
            await server.wait_closed()


def target_of(url: str) -> Target:
    """Where the server of `url` listens: host and port, or the path of a Unix socket."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    folder = asked.get("host", [""])[0] if parts.scheme.startswith("postgres") else ""
    if folder.startswith("/"):
        return f"{folder}/.s.PGSQL.{asked.get('port', ['5432'])[0]}"
    return parts.hostname or "127.0.0.1", parts.port or _DEFAULT_PORTS[parts.scheme]


def through(url: str, port: int) -> str:
    """The same address by way of `port` on loopback."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    query = "" if isinstance(target_of(url), str) else parts.query
    return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}", query=query))
