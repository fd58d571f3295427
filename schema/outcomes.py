"""How jobs ended, for a back end that wants to hear of each of them once.

The order is that of the ids of the transactions that ended them, and only what lies below the oldest open transaction
is shown. A time or a sequence would be taken before the commit, so a slow commit would appear behind a reader that
has passed it. The price: a transaction that writes and stays open, anywhere on the server, holds outcomes up.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson

from schema.database import Database
from schema.job_ids import JobId
from schema.jobs import JobError, JobStatus
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class OutcomeCursor:
    """The place of one outcome in the order: the transaction that ended the job (64 bits), then the job."""

    xid: int
    job_id: UUID


FIRST: Final = OutcomeCursor(0, UUID(int=0))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One ended job, without its result, which may be large."""

    cursor: OutcomeCursor
    job_id: JobId
    user_id: str | None
    kind: str
    status: JobStatus
    retry_of: UUID | None
    created_at: datetime
    finished_at: datetime
    metadata: dict[str, Any]
    error: JobError | None


async def outcomes_after(
    database: Database, tenant_id: UUID | None, after: OutcomeCursor, limit: int
) -> list[Outcome]:
    """The next outcomes of a tenant, or of all where it is None; empty where there is none that may be shown yet."""
    place = (str(after.xid), after.job_id, limit)
    if tenant_id is None:
        rows = await database.fetch(statement("outcomes_of_all"), *place)
    else:
        rows = await database.fetch(statement("outcomes_of_tenant"), *place, tenant_id)
    return [_outcome(row) for row in rows]


def _outcome(row: asyncpg.Record) -> Outcome:
    code = row["error_code"]
    return Outcome(
        cursor=OutcomeCursor(int(row["xid"]), row["id"]),
        job_id=row["id"],
        user_id=row["user_id"],
        kind=row["kind"],
        status=JobStatus(row["status"]),
        retry_of=row["retry_of"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        metadata=orjson.loads(row["metadata"] or "{}"),
        error=JobError(code, row["error_class"], row["error_message"] or "") if code else None,
    )
