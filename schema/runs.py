"""What the holder of a lease does with its run, and what is done when a holder is gone.

Every write goes through the run token under the lock of the lease row; a stale token writes nothing and is told so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson

from schema.database import Database
from schema.drafts import CancelBy
from schema.events import EventKind
from schema.executor import Executor
from schema.job_ids import JobId
from schema.json_line import json_line
from schema.statements import statement

# A result that is larger is left out of the terminal event; protocol.md 4.
RESULT_IN_EVENT_BYTES = 32 * 1024


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    LOST = "lost"
    RELEASED = "released"
    CANCELLED = "cancelled"


class NextReason(StrEnum):
    """Why there is another attempt."""

    STARTED = "started"
    LEASE_EXPIRED = "lease_expired"
    TRANSIENT_ERROR = "transient_error"
    THROTTLED = "throttled"
    RELEASED = "released"
    UNKNOWN_RETRY = "unknown_retry"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a job's log and to end it, as long as `run_token` is the one in the row."""

    job_id: JobId
    run_token: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A job with the lease on it, as the claim returned it; `last_seq` is that of its `attempt` event."""

    lease: Lease
    attempts: int
    max_attempts: int
    kind: str
    provider: str | None
    model: str | None
    on_unknown: str
    last_seq: int
    traceparent: str | None
    input: Any
    checkpoint: Any


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learned of one run. Neither renewed nor lost = the row was locked: not known, ask again."""

    renewed: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class ExpiredRun:
    """A run whose holder is gone, under lock, with what decides its fate."""

    lease: Lease
    last_seq: int
    attempts: int
    max_attempts: int
    on_unknown: str
    repeat: str
    has_checkpoint: bool
    cancel_by: CancelBy | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, to be stored and shown; `message` is ours, never an exception's text."""

    code: str
    error_class: str
    message: str

    def as_json(self) -> dict[str, str]:
        """As callers see it."""
        return {"code": self.code, "class": self.error_class, "message": self.message}


async def promote_due(executor: Executor, limit: int) -> int:
    """Queue the scheduled jobs whose time has come, at most `limit`; returns how many."""
    return len(await executor.fetch(statement("promote_due"), limit))


async def claim(
    executor: Executor,
    worker: str,
    kinds: Collection[str],
    providers: Collection[str],
    limit: int,
    lease_s: float,
) -> list[ClaimedRun]:
    """Take up to `limit` queued jobs; each comes with its lease, its attempt and its `attempt` event committed."""
    rows = await executor.fetch(statement("claim"), worker, lease_s, list(kinds), list(providers), limit)
    return [_claimed(dict(row)) for row in rows]


def _claimed(row: dict[str, Any]) -> ClaimedRun:
    lease = Lease(row.pop("job_id"), row.pop("run_token"), row.pop("attempt"))
    parsed = {name: orjson.loads(row[name]) if row[name] else None for name in ("input", "checkpoint")}
    return ClaimedRun(lease, **row | parsed)


async def heartbeat(executor: Executor, leases: Sequence[Lease], lease_s: float) -> dict[UUID, Beat]:
    """Prolong all of a worker's leases in one statement that waits for no lock."""
    rows = await executor.fetch(
        statement("heartbeat"),
        [each.job_id for each in leases],
        [each.run_token for each in leases],
        lease_s,
    )
    held_by = {row["job_id"]: row for row in rows}
    return {
        each.job_id: Beat(row["renewed"], row["held_by"] != each.run_token)
        for each in leases
        for row in (held_by[each.job_id],)
    }


async def leases_of(executor: Executor, job_ids: Collection[UUID]) -> dict[UUID, tuple[UUID, int]]:
    """(run token, last seq) of whoever holds each of these jobs; jobs that nobody holds are left out."""
    rows = await executor.fetch(statement("leases_of"), list(job_ids))
    return {row["job_id"]: (row["run_token"], row["last_seq"]) for row in rows}


def _ended_data(status: EventKind, attempt: int, outcome: Mapping[str, Any]) -> str:
    return json_line({"status": status, "attempt": attempt, **outcome}).decode()


async def succeed(executor: Executor, lease: Lease, last_seq: int, result: Any) -> bool:
    """End the job with its result; False where nothing was written: the lease is not ours any more, or somebody wants
    the job cancelled.

    `last_seq` is where the log is; `result` a JSON value without NUL or lone surrogates.
    """
    text = json_line(result)
    shown = {"result": result}
    if len(text) > RESULT_IN_EVENT_BYTES:
        shown = {"result_url": f"/api/ai/jobs/{lease.job_id}/result"}
    data = _ended_data(EventKind.SUCCEEDED, lease.attempt, shown)
    row = await executor.fetchrow(
        statement("end_run"),
        *(lease.job_id, lease.run_token, last_seq, EventKind.SUCCEEDED.value, data),
        *(AttemptOutcome.SUCCEEDED.value, text.decode(), None, None, None),
    )
    return row is not None


async def fail(executor: Executor, lease: Lease, last_seq: int, failure: Failure, outcome: AttemptOutcome) -> bool:
    """End the job without a result; False where the lease is not ours any more, and then nothing was written."""
    data = _ended_data(EventKind.FAILED, lease.attempt, {"error": failure.as_json()})
    row = await executor.fetchrow(
        statement("end_run"),
        *(lease.job_id, lease.run_token, last_seq, EventKind.FAILED.value, data),
        *(outcome.value, None, failure.code, failure.error_class, failure.message),
    )
    return row is not None


async def end_cancelled(executor: Executor, lease: Lease, last_seq: int, outcome: AttemptOutcome) -> bool:
    """End the job as cancelled; False where the lease is not ours any more, and then nothing was written."""
    data = _ended_data(EventKind.CANCELLED, lease.attempt, {})
    row = await executor.fetchrow(
        statement("end_run"),
        *(lease.job_id, lease.run_token, last_seq, EventKind.CANCELLED.value, data),
        *(outcome.value, None, None, None, None),
    )
    return row is not None


async def cancels_among(executor: Executor, job_ids: Collection[UUID]) -> dict[UUID, CancelBy]:
    """Those of these jobs that somebody wants to end, and who."""
    rows = await executor.fetch(statement("cancels_among"), list(job_ids))
    return {row["id"]: CancelBy(row["cancel_by"]) for row in rows}


async def store_checkpoint(executor: Executor, lease: Lease, last_seq: int, checkpoint: Any) -> bool:
    """Keep what a later attempt begins with, after all that is in the log up to `last_seq`; False where the lease is
    stale. `checkpoint` is a JSON value without NUL or lone surrogates."""
    row = await executor.fetchrow(
        statement("store_checkpoint"), lease.job_id, lease.run_token, last_seq, orjson.dumps(checkpoint).decode()
    )
    return row is not None


async def put_back(
    executor: Executor,
    lease: Lease,
    last_seq: int,
    reason: NextReason,
    outcome: AttemptOutcome,
    *,
    delay_s: float = 0,
    counted: bool = True,
) -> bool:
    """End the run and let the job wait for another, at once or after `delay_s`; False where the lease is stale."""
    row = await executor.fetchrow(
        statement("put_back"),
        *(lease.job_id, lease.run_token, last_seq, float(delay_s), reason.value, outcome.value, counted),
    )
    return row is not None


async def list_expired(database: Database, after: UUID, limit: int) -> list[tuple[UUID, UUID]]:
    """(job id, run token) of leases that ran out, by id after `after`."""
    rows = await database.fetch(statement("list_expired"), after, limit)
    return [(row["job_id"], row["run_token"]) for row in rows]


async def lock_expired(executor: Executor, job_id: UUID, run_token: UUID) -> ExpiredRun | None:
    """The run under the locks of its job and its lease, if it is still expired and nobody else is at it."""
    row = await executor.fetchrow(statement("lock_expired"), job_id, run_token)
    if row is None:
        return None
    return ExpiredRun(
        lease=Lease(row["id"], run_token, row["attempt"]),
        last_seq=row["last_seq"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        on_unknown=row["on_unknown"],
        repeat=row["repeat"],
        has_checkpoint=row["has_checkpoint"],
        cancel_by=CancelBy(row["cancel_by"]) if row["cancel_by"] else None,
    )


async def expire_unstarted(executor: Executor, limit: int) -> dict[UUID, int]:
    """Fail the jobs that were not started before their `start_before`; returns their ids and last seqs."""
    failure = Failure("expired", "expired", "The job was not started before its `start_before`; create it again.")
    data = _ended_data(EventKind.FAILED, 0, {"error": failure.as_json()})
    rows = await executor.fetch(statement("expire_unstarted"), limit, data, failure.message)
    return {row["id"]: row["last_seq"] for row in rows}
