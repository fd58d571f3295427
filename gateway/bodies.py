"""Reading a request's body: bounded in size and in time, and off the event loop where it is large."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request

from gateway.problems import Problem
from gateway.strict_json import parse

T = TypeVar("T")

MOST_BYTES = 8 * 1024 * 1024  # docs/protocol.md 3
MOST_SECONDS = 30  # docs/protocol.md 3
# Below it parsing, checking and hashing take under 5 ms; above it every stream of the process would feel them.
INLINE_BYTES = 256 * 1024

# Each thread takes its turns with the event loop, 5 ms at a time: more of them would only starve the streams.
_limiter = anyio.CapacityLimiter(2)


async def read_json(request: Request) -> tuple[Any, int]:
    """The body's value and its size in bytes.

    Raises Problem unsupported_media_type, too_large, request_timeout, bad_json.
    """
    _check_headers(request)
    body = await _read(request)
    return await beside_the_loop(len(body), parse, body), len(body)


async def beside_the_loop(size_bytes: int, work: Callable[..., T], *values: Any) -> T:
    """`work(*values)`, in a thread where the body is so large that it would hold up the streams."""
    if size_bytes <= INLINE_BYTES:
        return work(*values)
    return await run_sync(work, *values, limiter=_limiter)


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
