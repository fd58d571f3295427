"""How far a call is in the log whose generation outlives the connection: there another attempt can go on with it."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from schema.executor import Executor
from schema.runs import Lease, NextReason
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The place in the provider's own counting up to which a call's pieces are in the log.

    `seamless`: whether the log holds nothing else since the last checkpoint, so that nothing of it is void when
    another attempt goes on.
    """

    call: int
    cursor: str | None
    seamless: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The last call of a job whose generation may still go on at the provider.

    `began_seq` and `asked` are those of the call that was sent first. `seamless`: another attempt may go on at
    `cursor` and keep the text; else only from the generation's start.
    """

    attempt: int
    call: int
    provider: str
    resume_id: str
    cursor: str | None
    began_seq: int
    asked: bytes
    seamless: bool

    def is_of(self, provider: str, asked: bytes) -> bool:
        """Whether a call of that provider that asks for that would be this one."""
        return (self.provider, self.asked) == (provider, asked)


async def begin_bookmark(executor: Executor, lease: Lease, resume_id: str, at: Bookmark) -> bool:
    """Keep the generation's id before anything of it is said; False where the lease is stale."""
    row = await executor.fetchrow(
        statement("begin_bookmark"), lease.job_id, lease.run_token, at.call, resume_id, at.cursor, at.seamless
    )
    return row is not None


async def move_bookmarks(executor: Executor, places: Collection[tuple[UUID, Bookmark]]) -> None:
    """(job, where its call is) of logs that were appended to in this transaction."""
    await executor.fetch(
        statement("move_bookmarks"),
        [job_id for job_id, _ in places],
        [each.call for _, each in places],
        [each.cursor for _, each in places],
        [each.seamless for _, each in places],
    )


async def find_unfinished(executor: Executor, job_id: UUID) -> tuple[NextReason, Unfinished | None]:
    """Why the job's newest attempt was begun, and what another could go on with."""
    row = await executor.fetchrow(statement("find_bookmark"), job_id)
    reason = NextReason(row["next_reason"])
    if row["attempt"] is None:
        return reason, None
    place = (row["attempt"], row["call"], row["provider"], row["resume_id"], row["resume_cursor"])
    return reason, Unfinished(*place, row["began_seq"], row["asked"], row["seamless"])


async def hand_over(executor: Executor, job_id: UUID, attempt: int, call: int) -> None:
    """From now on the generation is another call's, and so is its cost."""
    await executor.fetchrow(statement("hand_over"), job_id, attempt, call)


async def text_between(executor: Executor, job_id: UUID, after: int, to: int) -> str:
    """The text that the log holds after `after`, up to and with `to`."""
    row = await executor.fetchrow(statement("text_between"), job_id, after, to)
    return str(row["text"])
