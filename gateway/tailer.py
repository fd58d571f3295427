"""The tails of the jobs that are being watched, kept up to date.

    hint, poll, new LISTEN -> dirty jobs -> one query for all of them -> each job's tail -> its readers wake

A hint only marks a job dirty; what is shown is always what the table says. A tail is bounded in bytes, and a reader
that is further behind reads pages from the table until it meets the tail: memory grows with the jobs that are
watched, never with the number of readers or their slowness.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

import anyio
import structlog

from gateway.tails import Tail
from gateway.wheel import Pulse
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, LogBroken
from schema.events import read_many
from schema.hints import decode_hints, short_id

# Every hint lost costs this much latency, no event. 1,000 idle jobs cost one query of some 10 ms each time.
POLL_SECONDS = 1.5
# One query takes that many jobs: 64 took 0.8 ms, and a larger one would hold the loop while it is decoded.
JOBS_AT_ONCE = 200
# A job that has more is asked again at once.
ROWS_EACH = 500
# Between two tries while PostgreSQL is away; streams go on with heartbeats meanwhile.
AWAY_SECONDS = 0.5

log = structlog.get_logger()


class Tailer:
    """Call `hint` and `everything_changed` from the listener, `watch` from readers; `run` does the work."""

    def __init__(self, database: Database, poll_s: float = POLL_SECONDS) -> None:
        self._database = database
        self._poll_s = poll_s
        # By the form in which hints name a job: a hint for 200 jobs then costs 200 look-ups and makes no UUID.
        self._tails: dict[str, Tail] = {}
        self._dirty: set[Tail] = set()
        self._wanted = anyio.Event()

    @property
    def watched(self) -> int:
        """How many jobs have a reader."""
        return len(self._tails)

    def hint(self, payload: str) -> None:
        """What a NOTIFY said; jobs that nobody watches and news that are known cost nothing."""
        for short, seq in decode_hints(payload):
            tail = self._tails.get(short)
            if tail is not None and (tail.last is None or tail.last < seq):
                self._mark((tail,))

    def everything_changed(self) -> None:
        """Hints may have been lost: look at every job that is watched."""
        self._mark(self._tails.values())

    def _mark(self, tails: Iterable[Tail]) -> None:
        self._dirty.update(tails)
        self._wanted.set()

    @contextmanager
    def watch(self, job_id: UUID, pulse: Pulse) -> Iterator[Tail]:
        """The job's tail for one reader, who registers by this before it reads anything."""
        short = short_id(job_id)
        tail = self._tails.setdefault(short, Tail(job_id))
        tail.readers.add(pulse)
        try:
            yield tail
        finally:
            tail.readers.discard(pulse)
            if not tail.readers:
                self._tails.pop(short, None)

    def seed(self, tail: Tail, last_seq: int) -> None:
        """A reader has reached `last_seq`: let the tail go on from there."""
        if tail.seed(last_seq):
            # A hint that came before this had no place to be counted from.
            self._mark((tail,))

    async def run(self) -> None:
        """Read what is dirty, as it becomes so, and everything once in a while, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poll)
            tasks.start_soon(self._read)

    async def _poll(self) -> None:
        while True:
            await anyio.sleep(self._poll_s)
            self.everything_changed()

    async def _read(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            try:
                await self._read_dirty()
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("log not readable", error=str(error))
                await anyio.sleep(AWAY_SECONDS)
                self.everything_changed()

    async def _read_dirty(self) -> None:
        dirty, self._dirty = [tail for tail in self._dirty if tail.readers and tail.last is not None], set()
        for first in range(0, len(dirty), JOBS_AT_ONCE):
            await self._read_jobs({tail.job_id: tail for tail in dirty[first : first + JOBS_AT_ONCE]})

    async def _read_jobs(self, tails: dict[UUID, Tail]) -> None:
        cursors = {job_id: tail.last for job_id, tail in tails.items() if tail.last is not None}
        for job_id, events in (await read_many(self._database, cursors, ROWS_EACH)).items():
            tail = tails[job_id]
            try:
                tail.extend(events)
            except LogBroken as error:
                self._abandon(tail, error)
                continue
            if len(events) == ROWS_EACH:
                self._mark((tail,))

    def _abandon(self, tail: Tail, error: LogBroken) -> None:
        """Give up a tail that does not go on: its readers meet the hole in the table and are told there."""
        log.error("log has a hole", job_id=str(error.job_id), expected=error.expected, found=error.found)
        tail.forget()
