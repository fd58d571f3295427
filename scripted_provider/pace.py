"""So many a second, on the clock and not one after the other."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """`next` returns when the next one is due; `rate` 0 = at once."""

    def __init__(self, rate: float) -> None:
        self._gap_s = 1 / rate if rate else 0.0
        self._due = time.monotonic()

    async def next(self) -> None:
        self._due += self._gap_s
        await asyncio.sleep(max(0.0, self._due - time.monotonic()))
