"""Readers of a log in process: what a stream gave them, frame by frame."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import anyio
import orjson

from gateway.streaming import Reader, StreamEnd
from gateway.tailer import Tailer
from gateway.wheel import Wheel
from schema.database import Database
from schema.hints import EVENTS_CHANNEL
from schema.listener import Listener
from tests.support.waiting import until

NEVER_S = 1e6
# The wheel of the tests turns faster than a gateway's, so that heartbeats and ends come soon.
TURN_S = 0.02


@dataclass(frozen=True, slots=True)
class Frame:
    name: str
    id: int | None
    data: dict[str, object]


def parse(body: bytes) -> list[Frame]:
    """Strict: whole frames, LF only, one data line; a block of `retry:` alone is none."""
    assert body.endswith(b"\n\n") or not body
    assert b"\r" not in body
    frames = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            frames.append(Frame(fields["event"], number, orjson.loads(fields["data"])))
    return frames


@dataclass
class Stream:
    """One stream that is being read."""

    body: bytes = b""
    done: anyio.Event = field(default_factory=anyio.Event)

    @property
    def frames(self) -> list[Frame]:
        return parse(self.body)

    @property
    def ids(self) -> list[int]:
        return [frame.id for frame in self.frames if frame.id is not None]

    @property
    def last(self) -> Frame:
        return self.frames[-1]

    async def reaches(self, seq: int) -> None:
        await until(lambda: bool(self.ids) and self.ids[-1] >= seq, what=f"event {seq}")

    async def ended(self) -> None:
        """Bounded: a test that hangs in a loop that a time-out broke would hang in its own tear-down too."""
        with anyio.fail_after(10):
            await self.done.wait()

    async def read(self, reader: Reader, cursor: int = 0, wheel: Wheel | None = None) -> None:
        wheel = Wheel() if wheel is None else wheel
        with wheel.turning(anyio.CancelScope()) as pulse:
            async with aclosing(reader.follow(cursor, pulse)) as pieces:
                async for piece in pieces:
                    self.body += piece
        self.done.set()


def a_reader(
    database: Database,
    tailer: Tailer,
    job_id: UUID,
    *,
    heartbeat_s: float = NEVER_S,
    max_age_s: float = NEVER_S,
    token_s: float | None = None,
    draining: anyio.Event | None = None,
) -> Reader:
    now = time.monotonic()
    end = StreamEnd(draining or anyio.Event(), now + max_age_s, None if token_s is None else now + token_s)
    return Reader(database, tailer, job_id, end, heartbeat_s, retry_ms=1234)


@asynccontextmanager
async def tailing(database: Database, poll_s: float = NEVER_S, tailer: Tailer | None = None) -> AsyncIterator[Tailer]:
    """A tailer at work that nobody gives hints to."""
    tailer = tailer or Tailer(database, poll_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tailer.run)
        yield tailer
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def turning() -> AsyncIterator[Wheel]:
    """A wheel at work."""
    wheel = Wheel(TURN_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wheel.run)
        yield wheel
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def listening(database: Database, tailer: Tailer, ping_s: float = NEVER_S) -> AsyncIterator[Listener]:
    """The LISTEN connection of `tailer`, up."""
    on_reset: Callable[[], None] = tailer.everything_changed
    listener = Listener(database.settings, {EVENTS_CHANNEL: tailer.hint}, on_reset, ping_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.run)
        await until(lambda: listener.up)
        yield listener
        tasks.cancel_scope.cancel()
