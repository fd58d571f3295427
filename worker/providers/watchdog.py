"""How long a provider may take, and the watch that holds it to that.

Only content counts. Comments, pings and empty frames reset a socket's read time-out, so a provider
that merely pings would hold a run for ever; this clock does not see them. Nor does it run while our
own side is slow: a log that waits for its database is not the provider's silence.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

import anyio

T = TypeVar("T")

# After a finish reason only the usage frame and [DONE] are missing, which come within one round trip;
# a server that then keeps its connection open must not hold the run, which has its answer.
FINISH_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds a provider may take: to connect, from start to first content, between contents, in all."""

    connect_s: float = 5.0
    first_chunk_s: float = 60.0  # long prompts are read for tens of seconds before the first token
    silence_s: float = 120.0
    total_s: float = 600.0


class HasFileno(Protocol):
    """A socket, or what an event loop shows in place of one."""

    def fileno(self) -> int: ...


class OutOfTimeError(Exception):
    """The provider took too long; `code` says which limit it met."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Watchdog:
    """The clock of one call; it starts when it is made.

    `wait` bounds one step by a cancel scope. `guard` bounds a whole stream by one timer that moves with
    the content and cuts the socket: a scope for each read took a quarter of the cost of a piece.
    """

    def __init__(self, limits: TimeLimits) -> None:
        now = time.monotonic()
        self._silence_s = limits.silence_s
        self._end = now + limits.total_s
        self._deadline, self._code = now + limits.first_chunk_s, "first_chunk_timeout"
        self.expired: str | None = None
        """The code of the limit at which this watch cut the connection."""
        self._looks_at = inf
        self._timer: asyncio.TimerHandle | None = None
        self._connection: socket.socket | None = None

    def hold(self) -> None:
        """Our side is at work: only the total goes on."""
        self._deadline = inf

    def content(self) -> None:
        """Content came and is dealt with: the silence starts again."""
        self._deadline, self._code = time.monotonic() + self._silence_s, "silence_timeout"
        if self._deadline < self._looks_at:
            self._look()

    def finishing(self) -> None:
        """The answer is complete; little more is waited for."""
        self._end = min(self._end, time.monotonic() + FINISH_GRACE_S)
        self._look()

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The awaitable's result. Raises `OutOfTimeError` when the provider's time is over first."""
        with anyio.move_on_after(self._left_s()):
            return await awaitable
        raise OutOfTimeError(self._limit())

    @contextmanager
    def guard(self, connection: HasFileno) -> Iterator[None]:
        """Cuts the connection when time is over; see `expired` after an error or an end.

        Works on a descriptor of its own: uvloop's sockets cannot be shut down, and the number of one that
        was closed meanwhile may already be somebody else's.
        """
        with socket.socket(fileno=os.dup(connection.fileno())) as self._connection:
            self._look()
            try:
                yield
            finally:
                self._connection = None
                if self._timer is not None:
                    self._timer.cancel()

    def _look(self) -> None:
        """Cuts, or looks again when the time as it stands now will be over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is None:
            return
        left_s = self._left_s()
        if left_s > 0:
            self._looks_at = time.monotonic() + left_s
            self._timer = asyncio.get_running_loop().call_later(left_s, self._look)
            return
        self.expired = self._limit()
        with suppress(OSError):  # the other side may have closed it already
            self._connection.shutdown(socket.SHUT_RDWR)

    def _left_s(self) -> float:
        return max(0.0, min(self._deadline, self._end) - time.monotonic())

    def _limit(self) -> str:
        return "total_timeout" if self._end <= self._deadline else self._code
