"""The log of a job: appended by the holder of its lease, read by anybody from any place."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schema.bookmarks import Bookmark, move_bookmarks
from schema.database import Database
from schema.drafts import Draft, EventKind
from schema.executor import Executor
from schema.jobs import Reach
from schema.statements import statement

__all__ = [
    "Append",
    "Draft",
    "Event",
    "EventKind",
    "LogHead",
    "append",
    "append_marked",
    "log_head",
    "read_after",
    "read_many",
]

# A page of the log: enough for a reader at full speed, small enough that fifty readers at once are 25 MiB.
PAGE_ROWS = 1000
PAGE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a log. `data` is the text itself for a chunk, one line of JSON for every other kind."""

    seq: int
    kind: EventKind
    attempt: int
    data: str


@dataclass(frozen=True, slots=True)
class Append:
    """What one run wants to add after `base_seq`, and where that brings its call if it can be gone on with."""

    job_id: UUID
    run_token: UUID
    base_seq: int
    drafts: Sequence[Draft]
    bookmark: Bookmark | None = None

    @property
    def last_seq(self) -> int:
        """Where the log is once this has been written."""
        return self.base_seq + len(self.drafts)


@dataclass(frozen=True, slots=True)
class LogHead:
    """How far a log is, and whether nothing will follow."""

    last_seq: int
    finished: bool


async def append(executor: Executor, appends: Collection[Append]) -> set[UUID]:
    """Write all of it in one statement and one commit; returns the jobs that were written.

    One that is missing lost its lease, or its log is elsewhere than at `base_seq` (a commit that was thought lost),
    or its lease row was locked at that moment: look at the lease before you say which.
    """
    events = [
        (each.job_id, each.base_seq + number, draft.kind.value, draft.data)
        for each in appends
        for number, draft in enumerate(each.drafts, 1)
    ]
    rows = await executor.fetch(
        statement("append_events"),
        [each.job_id for each in appends],
        [each.run_token for each in appends],
        [each.base_seq for each in appends],
        [len(each.drafts) for each in appends],
        *([event[column] for event in events] for column in range(4)),
    )
    return {row["job_id"] for row in rows}


async def append_marked(database: Database, appends: Collection[Append]) -> set[UUID]:
    """The same, with the bookmarks of what was written in the same commit: a text and its place are kept together."""
    marks = {each.job_id: each.bookmark for each in appends if each.bookmark is not None}
    if not marks:
        return await append(database, appends)
    async with database.transaction() as connection:
        written = await append(connection, appends)
        await move_bookmarks(connection, [(job_id, at) for job_id, at in marks.items() if job_id in written])
    return written


async def read_after(
    database: Database, job_id: UUID, after: int, rows: int = PAGE_ROWS, size_bytes: int = PAGE_BYTES
) -> list[Event]:
    """The next page of one log; empty where nothing follows `after` yet."""
    found = await database.fetch(statement("read_after"), job_id, after, rows, size_bytes)
    return [Event(row["seq"], EventKind(row["kind"]), row["attempt"], row["data"]) for row in found]


async def read_many(database: Database, cursors: Mapping[UUID, int], rows_each: int) -> dict[UUID, list[Event]]:
    """What is new of each log after its cursor, at most `rows_each` events; jobs with nothing new are left out."""
    found = await database.fetch(statement("read_many"), list(cursors.keys()), list(cursors.values()), rows_each)
    logs: dict[UUID, list[Event]] = defaultdict(list)
    for job_id, seq, kind, attempt, data in found:
        logs[job_id].append(Event(seq, EventKind(kind), attempt, data))
    return logs


async def log_head(database: Database, reach: Reach, job_id: UUID) -> LogHead | None:
    """Where the log ends at this moment, if the job is there and within `reach`."""
    if not reach.covers(job_id):
        return None
    row = await database.fetchrow(statement("log_head"), job_id, reach.tenant_id, reach.user_id)
    return None if row is None else LogHead(row["last_seq"], row["finished"])
