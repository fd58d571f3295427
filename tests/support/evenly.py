"""A race that both sides win about as often, on any machine: whoever lost starts a little earlier the next time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import anyio

STEP = 1.15


@dataclass
class Evenly:
    """How long the second of two waits, in seconds; `wins` counts them."""

    delay_s: float = 0.005
    wins: Counter[bool] = field(default_factory=Counter)

    async def wait(self) -> None:
        """The second one's start, somewhere around the delay."""
        await anyio.sleep(self.delay_s * random.uniform(0.3, 1.7))  # it is the race itself, and waits for nothing

    def won(self, *, second: bool) -> None:
        """Which one came first."""
        self.wins[second] += 1
        self.delay_s = min(10.0, max(1e-4, self.delay_s * (STEP if second else 1 / STEP)))
