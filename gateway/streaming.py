"""Replay, then follow, for one reader: the heart of the gateway. No HTTP here, and no SQL.

    register at the tail            hints from now on mark the job dirty
    loop:  take `changed`           before reading, so that nothing can come in between unseen
           read after the cursor    from the tail where it reaches, else a page of the table
           write                    everything that is ready in one piece
           wait for `changed`       or for the heartbeat, or for the end of this stream

A reader is a cursor. Each piece that it gets begins at cursor + 1, from whichever source, so nothing can be doubled
or missing: table and tail are two ways to read one log. It holds no connection of the pool while it writes or waits.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

import anyio
import structlog

from gateway.frames import HEARTBEAT, opening, reconnect, retry_ms
from gateway.pages import read_page
from gateway.tailer import Tailer
from gateway.tails import Block, Tail
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, LogBroken

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What ends a stream before its log ends. Times are those of the event loop, in seconds."""

    draining: anyio.Event
    max_age_at: float
    token_expires_at: float | None = None

    def reason(self) -> str | None:
        """Why the stream must end now, if it must; the words are those of `reconnect`."""
        now = anyio.current_time()
        if self.draining.is_set():
            return "draining"
        if self.token_expires_at is not None and now >= self.token_expires_at:
            return "token_expired"
        return "max_age" if now >= self.max_age_at else None

    def within_s(self) -> float:
        """How long it may still go on."""
        ends_at = min(self.max_age_at, self.token_expires_at or self.max_age_at)
        return max(0.0, ends_at - anyio.current_time())


@dataclass(frozen=True, slots=True)
class Reader:
    """One stream that is being served."""

    database: Database
    tailer: Tailer
    job_id: UUID
    end: StreamEnd
    heartbeat_s: float

    async def follow(self, cursor: int) -> AsyncGenerator[bytes]:
        """Whole frames after `cursor`, to the end of the log or a `reconnect`; it always ends in one of them."""
        with self.tailer.watch(self.job_id) as tail:
            yield opening(retry_ms(self.tailer.readers))
            try:
                async with aclosing(self._follow(tail, cursor)) as pieces:
                    async for piece in pieces:
                        yield piece
            except (DatabaseUnavailable, DatabaseBusy, LogBroken) as error:
                log.warning("stream ended", job_id=str(self.job_id), error=type(error).__name__)
                yield reconnect("database", retry_ms(self.tailer.readers))

    async def _follow(self, tail: Tail, cursor: int) -> AsyncGenerator[bytes]:
        while True:
            changed = tail.changed
            block = await self._read(tail, cursor)
            cursor = block.last_seq
            if block.frames:
                yield block.frames
            if block.finished:
                return
            if (reason := self.end.reason()) is not None:
                yield reconnect(reason, retry_ms(self.tailer.readers))
                return
            if not block.frames and await self._silent(changed):
                yield HEARTBEAT

    async def _read(self, tail: Tail, cursor: int) -> Block:
        block = tail.after(cursor)
        if block is None:
            block = await read_page(self.database, self.job_id, cursor)
            if not block.frames:
                self.tailer.seed(tail, cursor)
        return block

    async def _silent(self, changed: anyio.Event) -> bool:
        """Wait for news; True where a whole heartbeat interval passed without any."""
        wait_s = min(self.heartbeat_s, self.end.within_s())
        with anyio.move_on_after(wait_s) as waited:
            await changed.wait()
        return waited.cancelled_caught and wait_s == self.heartbeat_s
