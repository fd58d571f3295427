"""One clock for all streams: it wakes who has been silent for long enough and ends who cannot be written to.

A timer for each wait and each write was a fifth of what a delivery cost; this turns once a second for all of them, so
a heartbeat comes at most one turn late.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import anyio

TURN_SECONDS = 1.0
# A reader that takes nothing for so long is gone or hostile; it comes back with its cursor if it lives.
SEND_SECONDS = 30.0


class Pulse:
    """One stream's flag, with the times at which the wheel raises it or ends the stream (`time.monotonic`)."""

    __slots__ = ("_flag", "_scope", "_sent_by", "wakes_at")

    def __init__(self, scope: anyio.CancelScope | None = None) -> None:
        self.wakes_at = inf
        self._flag = asyncio.Event()
        self._scope = scope
        self._sent_by = inf

    def look(self) -> None:
        """Lower the flag; done before reading, so that what comes meanwhile raises it again."""
        self._flag.clear()

    def wake(self) -> None:
        """Raise the flag."""
        self._flag.set()

    async def wait(self) -> None:
        """Wait until the flag is up."""
        await self._flag.wait()

    def sending(self) -> None:
        """A write begins."""
        self._sent_by = time.monotonic() + SEND_SECONDS

    def sent(self) -> None:
        """It was taken."""
        self._sent_by = inf

    def turn(self, now: float) -> None:
        """What the wheel does once a turn."""
        if now >= self._sent_by and self._scope is not None:
            self._scope.cancel()
        elif now >= self.wakes_at:
            self._flag.set()


class Wheel:
    """All streams of this process; `run` is its task."""

    def __init__(self, turn_s: float = TURN_SECONDS) -> None:
        self._turn_s = turn_s
        self._pulses: set[Pulse] = set()

    def __len__(self) -> int:
        return len(self._pulses)

    @contextmanager
    def turning(self, scope: anyio.CancelScope) -> Iterator[Pulse]:
        """A pulse for one stream; `scope` is cancelled when its reader takes nothing any more."""
        pulse = Pulse(scope)
        self._pulses.add(pulse)
        try:
            yield pulse
        finally:
            self._pulses.discard(pulse)

    def wake_all(self) -> None:
        """Let every stream look up, because the process is about to end."""
        for pulse in self._pulses:
            pulse.wake()

    async def run(self) -> None:
        """Turn until cancelled."""
        while True:
            await anyio.sleep(self._turn_s)
            now = time.monotonic()
            for pulse in self._pulses:
                pulse.turn(now)
