"""Reading a request's body: bounded in size and in time, and looked into elsewhere where it is large."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio.to_process import run_sync
from starlette.requests import Request

from gateway.problems import Problem

T = TypeVar("T")

MOST_BYTES = 8 * 1024 * 1024  # docs/protocol.md 3
MOST_SECONDS = 30  # docs/protocol.md 3
# What is smaller takes under 10 ms. What is larger would hold up every stream of the process, and in a thread too:
# 8 MB of `[],` held the interpreter's lock for 1.9 s, most of it in the garbage collector.
INLINE_BYTES = 256 * 1024
# Objects cost more than bytes: of 64,000 numbers or 128,000 brackets, such a body took 100 to 200 ms.
INLINE_VALUES = 8_000
# Such a body becomes some 500 MB of objects.
PROCESSES = 2

_limiter = anyio.CapacityLimiter(PROCESSES)


async def read_body(request: Request) -> bytes:
    """The body as it came. Raises Problem unsupported_media_type, too_large, request_timeout."""
    _check_headers(request)
    return await _read(request)


async def beside_the_loop(work: Callable[..., T], body: bytes, *values: Any) -> T:
    """`work(body, *values)`, in another process where the body is so large or full that it would hold up the streams.

    `work` is a function of a module; what it takes, returns and raises is pickled on the way and should be small.
    """
    if len(body) <= INLINE_BYTES and sum(map(body.count, (b",", b"[", b"{"))) <= INLINE_VALUES:
        return work(body, *values)
    return await run_sync(work, body, *values, cancellable=True, limiter=_limiter)


def _check_headers(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise Problem("unsupported_media_type", "Send the body without a Content-Encoding.")
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if media_type.strip() != "application/json" or charset not in {"", "utf-8", "utf8"}:
        raise Problem("unsupported_media_type", "Send Content-Type: application/json, in UTF-8.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise _too_large()


async def _read(request: Request) -> bytes:
    body = bytearray()
    with anyio.move_on_after(MOST_SECONDS) as scope:
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                raise _too_large()
    if scope.cancelled_caught:
        raise Problem(
            "request_timeout",
            f"The body took longer than {MOST_SECONDS} s. Send it again, faster.",
            {"Connection": "close"},
        )
    return bytes(body)


def _too_large() -> Problem:
    return Problem("too_large", f"The body is over {MOST_BYTES // 1024 // 1024} MiB. Send less.")
