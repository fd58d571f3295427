"""What a caller does with a job that is there: find it, see it, list it, cancel it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from schema.database import Database
from schema.drafts import CancelBy
from schema.job_ids import JobId
from schema.statements import statement


class JobStatus(StrEnum):
    """The states of a job; docs/protocol.md has the table of who moves it from one to the next.

    SCHEDULED waits for its time, by wish or backing off; whoever sees that it is due makes it QUEUED.
    QUEUED may be claimed; the claim makes it RUNNING in the commit that writes lease, attempt and event.
    RUNNING ends in one of the three below, or goes back when the attempt ends without one or its lease runs out.
    SUCCEEDED, FAILED and CANCELLED are for ever: no event, no money, no attempt after them.
    """

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to the job any more."""
        return self in {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED}


@dataclass(frozen=True, slots=True)
class Reach:
    """What somebody may see: one tenant's jobs or all (an operator), of one user or all, some jobs or all."""

    tenant_id: UUID | None
    user_id: str | None = None
    jobs: frozenset[UUID] | None = None

    def covers(self, job_id: UUID) -> bool:
        """Whether the list of jobs, where there is one, holds this one."""
        return self.jobs is None or job_id in self.jobs


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed, in our words."""

    code: str
    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its owner sees it."""

    id: JobId
    tenant_id: UUID
    user_id: str | None
    kind: str
    status: JobStatus
    priority: int
    provider: str | None
    model: str | None
    attempts: int
    max_attempts: int
    cancel_requested: bool
    retry_of: UUID | None
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_for: str | None
    last_event_id: int
    metadata: Any
    result: Any
    error: JobError | None
    reserved_usd: Decimal | None
    charged_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The job that an idempotency key made, and the hash of the request that made it."""

    job_id: JobId
    request_hash: bytes


async def find_by_key(database: Database, tenant_id: UUID, scope: str, key: str) -> KeyUse | None:
    """The use of an idempotency key, if any."""
    row = await database.fetchrow(statement("find_by_key"), tenant_id, scope, key)
    return None if row is None else KeyUse(JobId(row["id"]), row["request_hash"])


async def get_job(database: Database, reach: Reach, job_id: UUID) -> Job | None:
    """The job, if it is there and within `reach`."""
    if not reach.covers(job_id):
        return None
    row = await database.fetchrow(statement("get_job"), job_id, reach.tenant_id, reach.user_id)
    return None if row is None else _job(row)


@dataclass(frozen=True, slots=True)
class Cancel:
    """What a wish to cancel met: the status before it, and the seq of the end where it ended the job at once."""

    was: JobStatus
    last_seq: int | None


async def cancel_job(database: Database, reach: Reach, job_id: UUID, by: CancelBy = CancelBy.USER) -> Cancel | None:
    """End a job that waits, or ask the holder of one that runs to end it; None where there is no such job in reach.

    What was RUNNING then will end CANCELLED, whatever its holder has in hand: the end looks at the wish under the
    same lock. What had ended before stays as it is.
    """
    if not reach.covers(job_id):
        return None
    row = await database.fetchrow(statement("cancel_job"), job_id, reach.tenant_id, reach.user_id, by.value)
    return None if row is None else Cancel(JobStatus(row["was"]), row["last_seq"])


async def list_jobs(
    database: Database,
    reach: Reach,
    *,
    user_id: str | None = None,
    status: JobStatus | None = None,
    kind: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[Job]:
    """The newest jobs within `reach`, at most `limit`, older than `before`, with no result in them."""
    jobs: Collection[UUID] | None = None if reach.jobs is None else list(reach.jobs)
    wanted_user = user_id if reach.user_id is None else reach.user_id
    if user_id not in (None, wanted_user):
        return []
    rows = await database.fetch(
        statement("list_jobs"), reach.tenant_id, wanted_user, status, kind, jobs, before, limit
    )
    return [_job(row, with_result=False) for row in rows]


def _job(row: asyncpg.Record, *, with_result: bool = True) -> Job:
    values = dict(row)
    error_code, error_class = values.pop("error_code"), values.pop("error_class")
    message = values.pop("error_message") or ""
    result, metadata = values.pop("result"), values.pop("metadata")
    return Job(
        **values | {"status": JobStatus(values["status"])},
        metadata=orjson.loads(metadata or "{}"),
        result=orjson.loads(result) if result is not None and with_result else None,
        error=JobError(error_code, error_class, message) if error_code else None,
    )
