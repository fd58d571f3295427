"""What the fake provider can do to a request: an exchange, and scripts for it from well-behaved to broken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from scripted_provider.exchange import Exchange as Wire
from scripted_provider.exchange import Request

__all__ = [
    "DONE",
    "SCRIPTS",
    "USAGE",
    "Exchange",
    "Request",
    "Script",
    "answering",
    "failing",
    "stepping",
    "streaming",
]

DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


class Exchange(Wire):
    """The server's side of one chat completions request: what a script says and does."""

    async def frame(self, document: object) -> None:
        await self.raw(f"data: {json.dumps(document)}\n\n".encode())

    async def delta(self, **delta: Any) -> None:
        await self.frame({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    async def text(self, *texts: str) -> None:
        for text in texts:
            await self.delta(content=text)

    async def finish(self, reason: str | None = "stop") -> None:
        await self.frame({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})

    async def usage(self, **more: Any) -> None:
        await self.frame({"id": "c1", "choices": [], "usage": USAGE | more})

    async def done(self) -> None:
        await self.raw(DONE)
        await self.end()


Script = Callable[[Exchange], Awaitable[None]]


def streaming(*texts: str, gap_s: float = 0.0, reason: str = "stop") -> Script:
    """A well-behaved stream with usage and `[DONE]`, with a pause before each text."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.delta(role="assistant", content="")
        for text in texts:
            await asyncio.sleep(gap_s)
            await exchange.text(text)
        await exchange.finish(reason)
        await exchange.usage()
        await exchange.done()

    return script


def stepping(*texts: str) -> Script:
    """The same, but every text waits for a `release()`, and so does the end."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for text in texts:
            await exchange.released()
            await exchange.text(text)
        await exchange.released()
        await exchange.finish()
        await exchange.usage()
        await exchange.done()

    return script


def answering(status: int, body: object = None, **headers: str) -> Script:
    """A plain answer with a JSON body (bytes as they are), as errors are."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(status, body, **headers)

    return script


def failing(status: int, code: str | None = None, type: str | None = None, **headers: str) -> Script:
    """An error answer in OpenAI's shape."""
    error = {"message": "scripted", "type": type, "code": code, "param": None}
    return answering(status, {"error": error}, **headers)


async def _hanging(exchange: Exchange) -> None:
    await exchange.hang()


async def _cut_in_chunk(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.text("par")
    await exchange.wire(b"40\r\ndata: {")
    exchange.reset()


async def _without_end(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.text("half a ", "story")
    await exchange.end()


async def _pinging(exchange: Exchange) -> None:
    await exchange.head()
    while not exchange.request.gone.is_set():
        await exchange.raw(b": ping\n\n")
        await exchange.delta()
        await asyncio.sleep(0.02)


async def _error_in_stream(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.text("so ")
    await exchange.frame({"error": {"code": "server_error", "message": "scripted"}})
    await exchange.end()


_SENTENCE = ["A ", "script ", "is ", "no ", "model, ", "but ", "it ", "keeps ", "its ", "word. "]

SCRIPTS: dict[str, Script] = {
    "normal": streaming("Hello", ", ", "world", "."),
    "slow": streaming(*_SENTENCE * 20, gap_s=0.05),
    "hang": _hanging,
    "cut": _cut_in_chunk,
    "no-end": _without_end,
    "ping": _pinging,
    "stream-error": _error_in_stream,
    "content-filter": streaming("no", reason="content_filter"),
    "length": streaming("cut sho", reason="length"),
    "json-error": answering(200, {"error": {"code": "server_error", "message": "scripted"}}),
    "quota": failing(429, "insufficient_quota"),
    "429": failing(429, "rate_limit_exceeded", retry_after="7"),
} | {str(status): failing(status) for status in (400, 401, 403, 404, 408, 422, 500, 502, 503, 504, 529)}
