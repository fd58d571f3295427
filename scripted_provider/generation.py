"""A generation in the background: it goes on whoever listens, and anybody can hear it from any event on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from scripted_provider.behaviour import Behaviour
from scripted_provider.pace import Pace
from scripted_provider.script import pieces_of
from scripted_provider.wires.responses import ResponsesWire


class Generation:
    """One response that is being made by a task of its own."""

    def __init__(self, wire: ResponsesWire, behaviour: Behaviour) -> None:
        self.wire = wire
        self._behaviour = behaviour
        self._events: list[bytes] = []
        self._more = asyncio.Event()
        self._is_over = False
        self._task = asyncio.create_task(self._generate())

    async def heard(self, after: int = -1) -> AsyncIterator[bytes]:
        """Its events behind number `after`, as they come."""
        at = after + 1
        while True:
            more = self._more
            while at < len(self._events):
                yield self._events[at]
                at += 1
            if self._is_over:
                return
            await more.wait()

    def cancel(self) -> bool:
        """False where it is over already."""
        if self._is_over:
            return False
        self._task.cancel()
        self.wire.status = "cancelled"
        self._end()
        return True

    async def _generate(self) -> None:
        self._say(self.wire.start())
        pace = Pace(self._behaviour.rate)
        for text in pieces_of(self._behaviour):
            await pace.next()
            self._say(self.wire.piece(text))
        self._say(self.wire.end("stop"))
        self._end()

    def _say(self, body: bytes) -> None:
        self._events += [part + b"\n\n" for part in body.split(b"\n\n") if part]
        self._wake()

    def _end(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        more, self._more = self._more, asyncio.Event()
        more.set()
