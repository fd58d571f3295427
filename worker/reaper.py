"""What no holder does: take back the runs of workers that are gone, promote what is due, fail what came too late.

It runs in every worker, beside the slots, and any number of them may run at once: expired leases are found without a
lock, then locked one by one in the order job, lease, skipping what somebody else is at.
"""

from dataclasses import replace
from uuid import UUID

import anyio
import structlog

from schema.bookmarks import find_unfinished
from schema.calls import attempt_spent, close_open_calls, exposed
from schema.database import Database
from schema.drafts import cancel_requested
from schema.endings import Ending, end_runs
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused
from schema.events import Append, append
from schema.executor import Executor
from schema.hints import HintSender
from schema.limits import fit_surplus
from schema.runs import ExpiredRun, Lease, list_expired, lock_expired, put_back
from schema.waiting import expire_unstarted, promote_due
from worker.external import external_event
from worker.providers.provider import CallOutcome
from worker.verdicts import Again, Cancelled, Left, Over, Verdict, on_lost

# A job waits at most this much longer than its lease, or than its time; three small indexed reads each.
LOOK_SECONDS = 1.0
# One page of expired leases, and of jobs that are promoted or expired at once.
PAGE = 200
_FIRST = UUID(int=0)

log = structlog.get_logger()


async def put_again(executor: Executor, lease: Lease, last_seq: int, again: Again) -> bool:
    """Let the job wait for another attempt, in one commit; False where the lease is stale."""
    return await put_back(
        *(executor, lease, last_seq, again.reason, again.outcome),
        delay_s=again.delay_s,
        counted=again.counted,
        idle=again.idle,
    )


async def _carry_out(executor: Executor, lease: Lease, last_seq: int, verdict: Verdict) -> None:
    """Do to a job under lock what was decided."""
    match verdict:
        case Again():
            await put_again(executor, lease, last_seq, verdict)
        case Over():
            await end_runs(executor, [Ending.failed(lease, last_seq, verdict.failure, verdict.outcome)])
        case Cancelled():
            await end_runs(executor, [Ending.cancelled(lease, last_seq, verdict.outcome)])


class Reaper:
    """Looks after jobs that nobody holds; `run` is its task."""

    def __init__(self, database: Database, hints: HintSender) -> None:
        self._database = database
        self._hints = hints

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._look()
            await anyio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        for task in (self._promote_due, self._expire_unstarted, self._take_back, self._fit_limits):
            try:
                await task()
            except (DatabaseUnavailable, DatabaseBusy, WriteRefused) as error:
                log.warning("reaper could not look", task=task.__name__.strip("_"), error=str(error))

    async def _promote_due(self) -> None:
        if await promote_due(self._database, PAGE):
            self._hints.work()

    async def _expire_unstarted(self) -> None:
        for job_id, last_seq in (await expire_unstarted(self._database, PAGE)).items():
            self._hints.events(job_id, last_seq)

    async def _fit_limits(self) -> None:
        if await fit_surplus(self._database):
            self._hints.work()

    async def _take_back(self) -> None:
        after = _FIRST
        while page := await list_expired(self._database, after, PAGE):
            for job_id, run_token in page:
                try:
                    await self._reap(job_id, run_token)
                except (DatabaseBusy, WriteRefused) as error:
                    # One job that cannot be decided now, or never, must hide no other.
                    log.error("lease not taken back", job_id=str(job_id), error=str(error))
            after = page[-1][0]

    async def _reap(self, job_id: UUID, run_token: UUID) -> None:
        async with self._database.transaction() as connection:
            expired = await lock_expired(connection, job_id, run_token)
            if expired is None:
                return
            last_seq = await self._close_calls(connection, expired)
            spent = await attempt_spent(connection, job_id, expired.lease.attempt)
            exposure = await exposed(connection, job_id, expired.exposure)
            _, unfinished = await find_unfinished(connection, job_id)
            left = Left.of(seamless=unfinished.seamless) if unfinished is not None else None
            verdict = on_lost(replace(expired, exposure=exposure), has_spent=spent, left=left)
            await _carry_out(connection, expired.lease, last_seq, verdict)
        log.warning("lease expired", job_id=str(job_id), attempt=expired.lease.attempt, next=type(verdict).__name__)
        self._hints.events(job_id, last_seq + 1)
        if isinstance(verdict, Again):
            self._hints.work()

    async def _close_calls(self, connection: Executor, expired: ExpiredRun) -> int:
        """Close what the holder left open, saying so in the log; returns its last seq."""
        lease = expired.lease
        calls = await close_open_calls(connection, lease.job_id, lease.attempt)
        # The holder may have said so already; a reader takes the wish twice as easily as once.
        drafts = [cancel_requested(expired.cancel_by)] if expired.cancel_by else []
        drafts += [external_event(lease.attempt, call, CallOutcome.UNKNOWN) for call in calls]
        if not drafts:
            return expired.last_seq
        one = Append(lease.job_id, lease.run_token, expired.last_seq, drafts)
        await append(connection, [one])
        return one.last_seq
