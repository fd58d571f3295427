"""The end of a run: terminal event, status, result, attempt, lease, permits and money, all in one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schema.database import Database
from schema.drafts import EventKind
from schema.executor import Executor
from schema.json_line import json_line
from schema.runs import AttemptOutcome, Failure, Lease
from schema.statements import statement

# A result that is larger is left out of the terminal event; protocol.md 4.
RESULT_IN_EVENT_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """What a run ends with. `data` is the terminal event's, `result` a JSON text or None."""

    lease: Lease
    last_seq: int
    status: EventKind
    data: str
    outcome: AttemptOutcome
    result: str | None = None
    failure: Failure | None = None

    @classmethod
    def succeeded(cls, lease: Lease, last_seq: int, result: Any) -> "Ending":
        """With its result, a JSON value without NUL or lone surrogates; `last_seq` is where the log is."""
        text = json_line(result)
        shown = {"result": result}
        if len(text) > RESULT_IN_EVENT_BYTES:
            shown = {"result_url": f"/api/ai/jobs/{lease.job_id}/result"}
        status, outcome = EventKind.SUCCEEDED, AttemptOutcome.SUCCEEDED
        return cls(lease, last_seq, status, ended_data(status, lease.attempt, shown), outcome, text.decode())

    @classmethod
    def failed(cls, lease: Lease, last_seq: int, failure: Failure, outcome: AttemptOutcome) -> "Ending":
        """Without a result."""
        data = ended_data(EventKind.FAILED, lease.attempt, {"error": failure.as_json()})
        return cls(lease, last_seq, EventKind.FAILED, data, outcome, failure=failure)

    @classmethod
    def cancelled(cls, lease: Lease, last_seq: int, outcome: AttemptOutcome) -> "Ending":
        """By request."""
        status = EventKind.CANCELLED
        return cls(lease, last_seq, status, ended_data(status, lease.attempt, {}), outcome)

    def values(self) -> tuple[object, ...]:
        """In the order in which the statement takes them."""
        failure = self.failure
        return (
            *(self.lease.job_id, self.lease.run_token, self.last_seq, self.status.value, self.data),
            *(self.outcome.value, self.result),
            *((failure.code, failure.error_class, failure.message) if failure else (None, None, None)),
        )


def ended_data(status: EventKind, attempt: int, outcome: Mapping[str, Any]) -> str:
    """The data of a terminal event; protocol.md 4."""
    return json_line({"status": status, "attempt": attempt, **outcome}).decode()


async def end_runs(executor: Executor, endings: Sequence[Ending]) -> set[UUID]:
    """End these jobs, in one statement that waits for no lock; returns those that have ended by it.

    One that is missing had a stale lease, a log elsewhere, a wish to be cancelled, or a row that somebody was at.
    """
    columns = zip(*(each.values() for each in endings), strict=True)
    rows = await executor.fetch(statement("end_runs"), *(list(column) for column in columns))
    return {row["id"] for row in rows}


async def end_run(database: Database, ending: Ending) -> bool:
    """End one, after whoever is at its rows; False where nothing was written: the lease is stale, or somebody wants
    the job cancelled."""
    async with database.transaction() as connection:
        await connection.fetch(statement("hold_run"), ending.lease.job_id)
        return bool(await end_runs(connection, [ending]))
