"""Pages of a log, read from the table and encoded: how a reader catches up."""

from itertools import pairwise
from uuid import UUID

from gateway.frames import frame
from gateway.tails import Block
from schema.database import Database
from schema.errors import LogBroken
from schema.events import Event, EventKind, read_after


async def read_page(database: Database, job_id: UUID, after: int) -> Block:
    """The next page after `after`, empty where the reader has caught up. Raises DatabaseUnavailable, LogBroken."""
    events = await read_after(database, job_id, after)
    if not events:
        return Block(b"", after, finished=False)
    _check(job_id, after, events)
    return Block(b"".join(map(frame, events)), events[-1].seq, events[-1].kind.ends)


def _check(job_id: UUID, after: int, events: list[Event]) -> None:
    """Only a snapshot may jump: it stands for the chunks before it."""
    seqs = [after, *(event.seq for event in events)]
    for (before, seq), event in zip(pairwise(seqs), events, strict=True):
        if seq != before + 1 and event.kind is not EventKind.SNAPSHOT:
            raise LogBroken(job_id, before + 1, seq)
