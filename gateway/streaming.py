"""Replay, then follow, for one reader: the heart of the gateway. No HTTP here, and no SQL.

    register at the tail            hints from now on mark the job dirty
    loop:  lower the flag           before reading, so that nothing can come in between unseen
           read after the cursor    from the tail where it reaches, else a page of the table
           write                    everything that is ready in one piece
           wait for the flag        raised by the tail, or by the wheel for a heartbeat or the end of this stream

A reader is a cursor. Each piece that it gets begins at cursor + 1, from whichever source, so nothing can be doubled
or missing: table and tail are two ways to read one log. It holds no connection of the pool while it writes or waits.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

import anyio
import structlog

from gateway.frames import HEARTBEAT, opening, reconnect
from gateway.pages import read_page
from gateway.tailer import Tailer
from gateway.tails import Block, Tail
from gateway.wheel import Pulse
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, LogBroken

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What ends a stream before its log ends. Times are those of `time.monotonic`."""

    draining: anyio.Event
    max_age_at: float
    token_expires_at: float | None = None
    is_revoked: Callable[[], bool] = lambda: False

    @property
    def at(self) -> float:
        """When the stream ends at the latest."""
        return min(self.max_age_at, self.token_expires_at or self.max_age_at)

    def reason(self) -> str | None:
        """Why the stream must end now, if it must; the words are those of `reconnect`."""
        if self.draining.is_set():
            return "draining"
        now = time.monotonic()
        if self.is_revoked() or (self.token_expires_at is not None and now >= self.token_expires_at):
            return "token_expired"
        return "max_age" if now >= self.max_age_at else None


@dataclass(frozen=True, slots=True)
class Reader:
    """One stream that is being served. `retry_ms` is how long its reader should wait before it comes back."""

    database: Database
    tailer: Tailer
    job_id: UUID
    end: StreamEnd
    heartbeat_s: float
    retry_ms: int

    async def follow(self, cursor: int, pulse: Pulse) -> AsyncGenerator[bytes]:
        """Whole frames after `cursor`, to the end of the log or a `reconnect`; it always ends in one of them."""
        with self.tailer.watch(self.job_id, pulse) as tail:
            yield opening(self.retry_ms)
            try:
                async with aclosing(self._follow(tail, cursor, pulse)) as pieces:
                    async for piece in pieces:
                        yield piece
            except (DatabaseUnavailable, DatabaseBusy, LogBroken) as error:
                log.warning("stream ended", job_id=str(self.job_id), error=type(error).__name__)
                yield reconnect("database", self.retry_ms)

    async def _follow(self, tail: Tail, cursor: int, pulse: Pulse) -> AsyncGenerator[bytes]:
        spoke_at = time.monotonic()
        while True:
            pulse.look()
            block, is_all = await self._read(tail, cursor)
            cursor = block.last_seq
            if block.frames:
                yield block.frames
                spoke_at = time.monotonic()
            if block.finished:
                return
            if (reason := self.end.reason()) is not None:
                yield reconnect(reason, self.retry_ms)
                return
            if is_all:
                pulse.wakes_at = min(spoke_at + self.heartbeat_s, self.end.at)
                await pulse.wait()
                if time.monotonic() >= spoke_at + self.heartbeat_s:
                    yield HEARTBEAT
                    spoke_at = time.monotonic()

    async def _read(self, tail: Tail, cursor: int) -> tuple[Block, bool]:
        return await read_block(self.database, self.tailer, tail, cursor)


async def read_block(database: Database, tailer: Tailer, tail: Tail, cursor: int) -> tuple[Block, bool]:
    """What follows the cursor, and whether that was all there is. Raises DatabaseUnavailable, LogBroken."""
    block = tail.after(cursor)
    if block is not None:
        return block, True
    page = await read_page(database, tail.job_id, cursor)
    if not page.frames:
        tailer.seed(tail, cursor)
    return page, not page.frames
