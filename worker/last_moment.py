"""The end of the grace: whatever hangs then, the process goes.

The loop cannot see to that by itself: a handler that computes in it, which none should, holds up its timers too.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Before the end of the grace: a platform would send SIGKILL a moment later.
LAST_SECONDS = 0.5


@contextmanager
def leaving_in_time(grace_s: float) -> Iterator[None]:
    """From the first SIGTERM or SIGINT on the process has so long; inside of anyio's signal receiver, which goes on.

    What is left then, a result that PostgreSQL does not take above all, is the reaper's of another worker. A signal
    handler of Python's own runs between two instructions of whatever the loop is at, and a thread's clock beside it.
    """
    clock = threading.Timer(max(0.0, grace_s - LAST_SECONDS), os._exit, [1])
    clock.daemon = True

    def start(_: int, __: FrameType | None) -> None:
        if clock.ident is None:
            clock.start()

    before = {number: signal.signal(number, start) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
