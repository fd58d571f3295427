"""One request on a real socket, and the server's side of it, down to the byte at which it breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


class Cut(Exception):
    """The connection was broken on purpose; there is nothing more to say on it."""


@dataclass(slots=True, eq=False)
class Request:
    """One request as it came; `gone` is set when the client closed its side before the script's end.

    `generated` counts the pieces that were made for it, heard by anybody or not.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    generated: int = 0

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


class Exchange:
    """The server's side of one request.

    `chunk_bytes` splits the body into HTTP chunks of that size, `cut_after_bytes` resets the connection when so much
    of the body was sent, `crlf` ends its lines as some proxies do; `headers` are of every answer on it.
    """

    def __init__(
        self, request: Request, writer: asyncio.StreamWriter, next_release: Callable[[], Awaitable[object]]
    ) -> None:
        self.request = request
        self.chunk_bytes: int | None = None
        self.cut_after_bytes: int | None = None
        self.crlf = False
        self.headers: dict[str, str] = {}
        self._writer = writer
        self._next_release = next_release
        self._sent_bytes = 0

    @classmethod
    def of(cls, other: Exchange) -> Self:
        """The same exchange, with what this class can say."""
        return cls(other.request, other._writer, other._next_release)

    async def head(self, status: int = 200, **headers: str) -> None:
        """Status line and headers of a chunked answer; `_` in a header's name is `-`."""
        given = {"content-type": "text/event-stream", "x-request-id": "req-1", **self.headers}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        given |= {"transfer-encoding": "chunked", "connection": "close"}
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in given.items())]
        await self.wire("\r\n".join([*lines, "", ""]).encode())

    async def answer(self, status: int, body: object, **headers: str) -> None:
        """A whole answer with a JSON body; bytes as they are."""
        await self.head(status, **{"content_type": "application/json"} | headers)
        await self.raw(body if isinstance(body, bytes) else json.dumps(body).encode())
        await self.end()

    async def raw(self, body: bytes) -> None:
        """More of the body."""
        body = body.replace(b"\n", b"\r\n") if self.crlf else body
        most = None if self.cut_after_bytes is None else self.cut_after_bytes - self._sent_bytes
        is_last = most is not None and len(body) >= most
        body = body[:most] if is_last else body
        self._sent_bytes += len(body)
        size = self.chunk_bytes or len(body)
        for start in range(0, len(body), size or 1):
            part = body[start : start + size]
            await self.wire(b"%x\r\n%s\r\n" % (len(part), part))
        if is_last:
            await self.cut()

    async def wire(self, data: bytes) -> None:
        """Bytes on the socket as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """A clean end of the body, whatever it said."""
        await self.wire(b"0\r\n\r\n")

    def reset(self) -> None:
        """The connection breaks, in the middle of whatever was being sent."""
        self._writer.transport.abort()

    async def cut(self) -> None:
        """The same, once what was said before is out. Raises Cut."""
        await self._writer.drain()
        self.reset()
        raise Cut

    async def released(self) -> None:
        """Waits for the next `release()` of the server."""
        await self._next_release()

    async def hang(self) -> None:
        """Says nothing more until the client goes away or the server stops."""
        await self.request.gone.wait()
