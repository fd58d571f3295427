"""What the holder of a lease does with its run, and what is done when a holder is gone.

Every write goes through the run token under the lock of the lease row; a stale token writes nothing and is told so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson

from schema.database import Database
from schema.drafts import CancelBy
from schema.executor import Executor
from schema.job_ids import JobId
from schema.statements import statement


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
    REATTACHED = "reattached"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write to a job's log and to end it, as long as `run_token` is the one in the row."""

    job_id: JobId
    run_token: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a job may cost and has cost, in US dollars.

    `max_cost_usd` None: no bound was set. `call_usd`: one call at worst, None where nobody knows. `spent_usd` is what
    is known of the calls so far; `unknown_calls` of them may have cost more.
    """

    max_cost_usd: Decimal | None = None
    call_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    unknown_calls: int = 0

    @property
    def allows_another(self) -> bool:
        """Whether all that the calls may have cost and one more stays within the bound."""
        if self.max_cost_usd is None:
            return True
        if self.call_usd is None:
            return False
        return self.spent_usd + (self.unknown_calls + 1) * self.call_usd <= self.max_cost_usd


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A job with the lease on it, as the claim returned it; `last_seq` is that of its `attempt` event."""

    lease: Lease
    attempts: int
    max_attempts: int
    tenant_id: UUID
    kind: str
    provider: str | None
    model: str | None
    on_unknown: str
    last_seq: int
    traceparent: str | None
    idle_releases: int
    throttled_s: int
    exposure: Exposure
    input: Any
    checkpoint: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """The start tag by which a tenant's job was taken, and the tenant's weight; worker/turns.py keeps them."""

    tenant_id: UUID
    tag: float
    weight: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took. `more`: others were at what was left, so that it is worth asking again."""

    runs: Sequence[ClaimedRun]
    turns: Sequence[Turn]
    more: bool


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
    exposure: Exposure
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


@dataclass(frozen=True, slots=True)
class Ask:
    """What a worker asks for: at most `limit` jobs of these kinds, for these providers, leased for `lease_s`.

    `tags` are the start tags of tenants that are ahead of `virtual_now`, the tag of whoever is not.
    """

    worker: str
    kinds: Collection[str]
    providers: Collection[str]
    limit: int
    lease_s: float
    virtual_now: float = 0
    tags: Mapping[UUID, float] = field(default_factory=dict)


async def claim(executor: Executor, ask: Ask) -> Claimed:
    """Take queued jobs; each comes with its lease, its attempt and its `attempt` event committed."""
    rows = await executor.fetch(
        statement("claim"),
        *(ask.worker, ask.lease_s, list(ask.kinds), list(ask.providers), ask.limit, ask.virtual_now),
        *(list(ask.tags.keys()), list(ask.tags.values())),
    )
    taken = [dict(row) for row in rows if row["job_id"] is not None]
    turns = [Turn(row["tenant_id"], row.pop("tag"), row.pop("weight")) for row in taken]
    return Claimed([_claimed(row) for row in taken], turns, more=len(taken) < len(rows))


def _claimed(row: dict[str, Any]) -> ClaimedRun:
    lease = Lease(row.pop("job_id"), row.pop("run_token"), row.pop("attempt"))
    exposure = Exposure(*(row.pop(name) for name in ("max_cost_usd", "call_usd", "spent_usd", "unknown_calls")))
    parsed = {name: orjson.loads(row[name]) if row[name] else None for name in ("input", "checkpoint")}
    return ClaimedRun(lease, exposure=exposure, **row | parsed)


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
    idle: bool = False,
) -> bool:
    """End the run and let the job wait for another, at once or after `delay_s`; False where the lease is stale.

    `idle`: it was handed back and had written nothing.
    """
    row = await executor.fetchrow(
        statement("put_back"),
        *(lease.job_id, lease.run_token, last_seq, float(delay_s), reason.value, outcome.value, counted, idle),
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
        exposure=Exposure(row["max_cost_usd"], row["call_usd"]),
        cancel_by=CancelBy(row["cancel_by"]) if row["cancel_by"] else None,
    )
