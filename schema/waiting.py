"""What becomes of jobs that wait without anybody's doing: those whose time has come, and those that came too late."""

from uuid import UUID

from schema.drafts import EventKind
from schema.endings import ended_data
from schema.executor import Executor
from schema.runs import Failure
from schema.statements import statement


async def promote_due(executor: Executor, limit: int) -> int:
    """Queue the scheduled jobs whose time has come, at most `limit`; returns how many."""
    return len(await executor.fetch(statement("promote_due"), limit))


async def expire_unstarted(executor: Executor, limit: int) -> dict[UUID, int]:
    """Fail the jobs that were not started before their `start_before`; returns their ids and last seqs."""
    failure = Failure("expired", "expired", "The job was not started before its `start_before`; create it again.")
    data = ended_data(EventKind.FAILED, 0, {"error": failure.as_json()})
    rows = await executor.fetch(statement("expire_unstarted"), limit, data, failure.message)
    return {row["id"]: row["last_seq"] for row in rows}
