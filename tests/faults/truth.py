"""What the tables say, against what a reader was shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from schema.database import Database
from schema.events import Event as Row
from schema.events import EventKind
from tests.faults.follower import Follower
from tests.support.api import Api, Job
from tests.support.jobs import attempt_rows, call_rows, check_log, job_row
from tests.support.sse_frames import Event


@dataclass(frozen=True, slots=True)
class Records:
    """All that the tables hold of one job, for comparing them at two moments."""

    job: dict[str, Any]
    events: list[Row]
    attempts: list[dict[str, Any]]
    calls: list[dict[str, Any]]

    @property
    def outcomes(self) -> list[tuple[str, bool]]:
        """Outcome of each attempt, and whether it used up one of max_attempts."""
        return [(row["outcome"], row["counted"]) for row in self.attempts]

    @property
    def call_outcomes(self) -> list[tuple[int, str]]:
        """Attempt and outcome of each call."""
        return [(row["attempt"], row["outcome"]) for row in self.calls]


async def records_of(database: Database, job: Job) -> Records:
    """Raises AssertionError where the log itself breaks an invariant."""
    job_id = UUID(job["job_id"])
    return Records(
        dict(await job_row(database, job_id)),
        await check_log(database, job_id),
        [dict(row) for row in await attempt_rows(database, job_id)],
        [dict(row) for row in await call_rows(database, job_id)],
    )


async def expect_succeeded(database: Database, api: Api, job: Job, follower: Follower) -> Records:
    """The job succeeded, and the reader saw the log: each row once, in order, and by it the text of the result."""
    ended = await api.ended(job["job_id"])
    assert ended["status"] == "succeeded", ended["error"]
    records = await records_of(database, job)
    expect_same(follower.seen, records.events)
    assert follower.reader.ids == list(range(1, len(records.events) + 1))
    assert follower.reader.text == _text(records) == ended["result"]["text"]
    return records


def expect_same(seen: Sequence[Event], rows: Sequence[Row]) -> None:
    """Every event that was shown stands in the table, at its place and as it was shown."""
    table = {row.seq: (_name(row), _data(row)) for row in rows}
    for event in seen:
        assert event.cursor is not None
        if event.is_terminal:
            # The stream may say `result_url` where the table has the result.
            assert table[event.cursor][0] == event.name
        else:
            assert table[event.cursor] == (event.name, event.data)


def _text(records: Records) -> str:
    """By the rows alone: what the last attempt said, after what it kept of those before it."""
    return "".join(row.data for row in records.events if row.kind is EventKind.CHUNK and _is_kept(records, row))


def _is_kept(records: Records, row: Row) -> bool:
    """No later attempt began after an earlier place than this row's."""
    begins = [
        orjson.loads(each.data) for each in records.events if each.kind is EventKind.ATTEMPT and each.seq > row.seq
    ]
    return all(row.seq <= each["resumes_after"] for each in begins)


def _name(row: Row) -> str:
    return "chunk" if row.kind is EventKind.CHANNEL else row.kind.value


def _data(row: Row) -> object:
    return {"text": row.data} if row.kind is EventKind.CHUNK else orjson.loads(row.data)
