"""The newest frames of one job, shared by all its readers."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from gateway.frames import frame
from gateway.wheel import Pulse
from schema.errors import LogBroken
from schema.events import Event

# Some 700 frames of a few words: seconds of the fastest model. Who is further behind reads pages from the table.
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Whole frames in a row: the bytes, the seq after them, and whether the log ends there."""

    frames: bytes
    last_seq: int
    finished: bool


class Tail:
    """Frames of seq > `start` up to `last`, without a hole. Before `seed` it holds nothing and reaches nowhere.

    `readers` are woken when there is something to look at. A reader lowers its flag before it reads, so that what
    comes in between wakes it.
    """

    def __init__(self, job_id: UUID) -> None:
        self.job_id = job_id
        self.readers: set[Pulse] = set()
        self.last: int | None = None
        self._start = 0
        self._frames: list[bytes] = []
        self._size_bytes = 0
        self._finished = False
        self._joined: Block | None = None
        self._joined_from = -1

    def seed(self, last_seq: int) -> bool:
        """Begin after `last_seq`, which a reader has reached; False where the tail has begun already."""
        if self.last is not None:
            return False
        self._start = self.last = last_seq
        return True

    def extend(self, events: Sequence[Event]) -> None:
        """Add what follows and wake the readers. Raises LogBroken where it does not follow on exactly."""
        assert self.last is not None
        for event in events:
            if event.seq != self.last + 1:
                raise LogBroken(self.job_id, self.last + 1, event.seq)
            encoded = frame(event)
            self._frames.append(encoded)
            self._size_bytes += len(encoded)
            self.last = event.seq
            self._finished = event.kind.ends
        self._trim()
        self.wake()

    def _trim(self) -> None:
        if self._size_bytes <= TAIL_BYTES:
            return
        # Down to half, so that the list is not shifted for every frame.
        dropped = 0
        while self._size_bytes > TAIL_BYTES // 2:
            self._size_bytes -= len(self._frames[dropped])
            dropped += 1
        del self._frames[:dropped]
        self._start += dropped

    def forget(self) -> None:
        """Hold nothing again, as before `seed`."""
        self.last = None
        self._frames.clear()
        self._size_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Let every reader look again."""
        for reader in self.readers:
            reader.wake()

    def after(self, cursor: int) -> Block | None:
        """All that follows `cursor`, empty at the end; None where the tail does not reach back so far.

        Readers that stand at the same place share one joined block.
        """
        if self.last is None or cursor < self._start:
            return None
        if cursor >= self.last:
            return Block(b"", cursor, self._finished and cursor == self.last)
        if self._joined is None or self._joined_from != cursor or self._joined.last_seq != self.last:
            joined = b"".join(self._frames[cursor - self._start :])
            self._joined, self._joined_from = Block(joined, self.last, self._finished), cursor
        return self._joined
