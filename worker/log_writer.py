"""What one run has said and the log does not have yet."""

from collections.abc import Iterator
from uuid import UUID

import anyio

from schema.bookmarks import Bookmark
from schema.events import Append, Draft, EventKind
from schema.runs import Lease

# One event's text. The worst character takes 6 bytes of JSON, so a line stays under the 64 KiB that readers may
# rely on (docs/protocol.md 4).
CHUNK_CHARACTERS = 8192
# A run that is ahead of the database by so much is made to wait: a slow disk slows handlers, not memory.
BUFFER_CHARACTERS = 256 * 1024


class LeaseLost(Exception):
    """Somebody else holds the job, or nobody does; whatever this run still says is not heard."""


class WriterBroken(Exception):
    """PostgreSQL refused an event of this run for good; nothing more can be added to its log."""


class LogWriter:
    """The end of one run's log: what is written waits here for the next commit, chunks joined to one event.

    `last_seq` is the last committed event. Only the appender commits, unless a writer is `held`, by one at a time who
    is `alone`: of two commits from the same place one would take the other's for its own.
    """

    def __init__(self, lease: Lease, last_seq: int) -> None:
        self.lease = lease
        self.last_seq = last_seq
        self.held = False
        self.has_cancel = False
        self.alone = anyio.Lock()
        self.in_flight: Append | None = None
        self._bookmark: Bookmark | None = None
        self._drafts: list[Draft] = []
        self._text: list[str] = []
        self._text_size = 0
        self._size = 0
        self._has_spoken = False
        self._began_at = last_seq
        self._error: Exception | None = None
        self._moved = anyio.Event()

    @property
    def job_id(self) -> UUID:
        """Of the job that runs."""
        return self.lease.job_id

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is being committed."""
        return not (self._drafts or self._text or self.in_flight)

    @property
    def has_written(self) -> bool:
        """Whether this run has added anything to the log, or is about to."""
        return self.last_seq > self._began_at or not self.is_empty

    @property
    def is_first(self) -> bool:
        """Whether this run has said nothing yet: its first piece must not wait."""
        return not self._has_spoken

    def chunk(self, text: str) -> None:
        """Add to the text."""
        self._has_spoken = True
        for piece in _pieces(text):
            if self._text_size + len(piece) > CHUNK_CHARACTERS:
                self._close_text()
            self._text.append(piece)
            self._text_size += len(piece)
            self._size += len(piece)

    def event(self, draft: Draft) -> None:
        """Add an event of another kind, behind all that was said before it."""
        self._close_text()
        self._drafts.append(draft)
        self._size += len(draft.data)

    def move(self, at: Bookmark | None) -> None:
        """All that was said of a call brings it to `at`, which goes out in one commit with that."""
        self._bookmark = at or self._bookmark

    def _close_text(self) -> None:
        if self._text:
            self._drafts.append(Draft(EventKind.CHUNK, "".join(self._text)))
            self._text, self._text_size = [], 0

    def take(self) -> Append | None:
        """All that waits, now in flight, or what is in flight still; None where there is nothing."""
        self._close_text()
        if self.in_flight or self.held or self._error or not self._drafts:
            return self.in_flight
        drafts, self._drafts, self._size = self._drafts, [], 0
        bookmark, self._bookmark = self._bookmark, None
        self.in_flight = Append(self.job_id, self.lease.run_token, self.last_seq, drafts, bookmark)
        return self.in_flight

    def committed(self, last_seq: int) -> None:
        """The log is at `last_seq` now."""
        self.in_flight, self.last_seq = None, last_seq
        self._wake()

    def fail(self, error: Exception) -> None:
        """Nothing can be added any more; whoever waits or writes gets `error`."""
        self.in_flight, self._error = None, error
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def check(self) -> None:
        """Raise LeaseLost or WriterBroken where the run has no log any more."""
        if self._error is not None:
            raise self._error

    async def room(self) -> None:
        """Wait until the buffer takes more."""
        self.check()
        while self._size > BUFFER_CHARACTERS:
            await self._moved.wait()
            self.check()

    async def drained(self) -> int:
        """Wait until everything that was said is committed; returns the last seq."""
        self.check()
        while not self.is_empty:
            await self._moved.wait()
            self.check()
        return self.last_seq


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHUNK_CHARACTERS):
        yield text[start : start + CHUNK_CHARACTERS]
