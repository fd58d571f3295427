"""The one place where a test polls: for what nothing announces, such as a row or an HTTP status."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")

# Short enough not to lengthen a test, long enough to leave two cores to what is waited for.
POLL_EVERY_S = 0.02


class NeverHappened(AssertionError):
    """A condition did not come true in time; `last` is what it gave the last time."""

    def __init__(self, what: str, timeout_s: float, last: object) -> None:
        super().__init__(f"{what} did not happen within {timeout_s:g} s; the last look gave {last!r}")
        self.what = what
        self.timeout_s = timeout_s
        self.last = last


@overload
async def until(condition: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = ..., *, what: str = ...) -> T: ...
@overload
async def until(condition: Callable[[], T], timeout_s: float = ..., *, what: str = ...) -> T: ...
async def until(condition: Callable[[], Any], timeout_s: float = 10.0, *, what: str = "") -> Any:
    """The first true value that `condition` gives, be it a function or a coroutine function.

    Raises NeverHappened after `timeout_s` seconds; an error of the condition itself passes through.
    """
    ends_at = time.monotonic() + timeout_s
    while True:
        last = await _look(condition)
        if last:
            return last
        if time.monotonic() >= ends_at:
            raise NeverHappened(what or _name(condition), timeout_s, last)
        await anyio.sleep(POLL_EVERY_S)


async def _look(condition: Callable[[], object | Awaitable[object]]) -> object:
    value = condition()
    return await value if inspect.isawaitable(value) else value


def _name(condition: Callable[..., object]) -> str:
    return getattr(condition, "__qualname__", repr(condition))
