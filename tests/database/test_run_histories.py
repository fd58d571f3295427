"""Invariants 2, 3, 4 and 10 over random histories of one job: whatever happens in whatever order, by whoever holds a
token or thinks so, the log counts 1..n, ends once, and job, lease and attempts agree.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.database import Database
from schema.endings import Ending, end_run
from schema.events import append
from schema.hints import HintSender
from schema.jobs import JobStatus
from schema.runs import Ask, AttemptOutcome, ClaimedRun, Failure, NextReason, claim, heartbeat, put_back
from schema.waiting import promote_due
from tests.support.jobs import a_tenant, attempt_rows, check_log, expire, job_row, queued, register, says
from worker.reaper import Reaper

pytestmark = pytest.mark.anyio

_FAILURE = Failure("test", "permanent", "A test.")
_STEPS = ("append", "stale", "succeed", "fail", "back", "later", "release", "claim", "reap", "beat", "due")


@dataclass
class History:
    """One job, all runs that it ever had, and what a model of it says must be so."""

    database: Database
    kind: str
    job_id: UUID
    runs: list[ClaimedRun] = field(default_factory=list)
    seq: int = 1
    live: bool = False
    uncounted: int = 0
    ended: JobStatus | None = None

    async def step(self, name: str, pick: int) -> None:
        await _DOES[name](self, pick)
        await self.check()

    async def claim(self, _: int) -> None:
        got = (await claim(self.database, Ask("w", [self.kind], [], 5, 60))).runs
        if got:
            assert not self.live
            assert self.ended is None
            self.runs.extend(got)
            self.live, self.seq = True, self.seq + 1
            assert got[0].last_seq == self.seq

    async def append(self, pick: int) -> None:
        if not self.runs:
            return
        count = pick % 3 + 1
        written = await append(self.database, [says(self.runs[-1], self.seq, *"abc"[:count])])
        assert bool(written) == self.live
        self.seq += count if written else 0

    async def stale(self, pick: int) -> None:
        """Any run that is not the live one tries everything."""
        old = self.runs[: -1 if self.live else None]
        if not old:
            return
        run = old[pick % len(old)]
        assert await append(self.database, [says(run, self.seq, "stale")]) == set()
        assert not await end_run(self.database, Ending.succeeded(run.lease, self.seq, "stale"))
        assert not await end_run(self.database, Ending.failed(run.lease, self.seq, _FAILURE, AttemptOutcome.FAILED))
        assert not await put_back(
            self.database, run.lease, self.seq, NextReason.RELEASED, AttemptOutcome.RELEASED, counted=False
        )

    async def succeed(self, _: int) -> None:
        if self.runs:
            done = await end_run(self.database, Ending.succeeded(self.runs[-1].lease, self.seq, {"text": "x"}))
            self._over(JobStatus.SUCCEEDED, done=done)

    async def fail(self, _: int) -> None:
        if self.runs:
            done = await end_run(
                self.database, Ending.failed(self.runs[-1].lease, self.seq, _FAILURE, AttemptOutcome.FAILED)
            )
            self._over(JobStatus.FAILED, done=done)

    def _over(self, status: JobStatus, *, done: bool) -> None:
        assert done == self.live
        if done:
            self.ended, self.live, self.seq = status, False, self.seq + 1

    async def back(self, _: int) -> None:
        await self._put_back(0, counted=True)

    async def later(self, _: int) -> None:
        await self._put_back(600, counted=True)

    async def release(self, _: int) -> None:
        await self._put_back(0, counted=False)

    async def _put_back(self, delay_s: float, *, counted: bool) -> None:
        if not self.runs:
            return
        reason, outcome = NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED
        done = await put_back(
            self.database, self.runs[-1].lease, self.seq, reason, outcome, delay_s=delay_s, counted=counted
        )
        assert done == self.live
        if done:
            self.live = False
            self.seq += 1 if delay_s else 0
            self.uncounted += 0 if counted else 1

    async def reap(self, _: int) -> None:
        """The lease ran out: by whatever verdict, the run is over, and the job has ended or waits."""
        if not self.live:
            return
        await expire(self.database, self.job_id)
        await Reaper(self.database, HintSender(self.database))._look()
        status = JobStatus((await job_row(self.database, self.job_id))["status"])
        self.live = False
        if status.ended:
            self.ended, self.seq = status, self.seq + 1

    async def beat(self, _: int) -> None:
        if self.runs:
            lease = self.runs[-1].lease
            beat = (await heartbeat(self.database, [lease], 60))[lease.job_id]
            assert (beat.renewed, beat.lost) == (self.live, not self.live)

    async def due(self, _: int) -> None:
        await self.database.execute("UPDATE outlive.ai_jobs SET run_at = now() WHERE id = $1", self.job_id)
        await promote_due(self.database, 10)

    async def check(self) -> None:
        events, row = await check_log(self.database, self.job_id), await job_row(self.database, self.job_id)
        attempts = await attempt_rows(self.database, self.job_id)
        assert len(events) == self.seq
        assert JobStatus(row["status"]).ended == (self.ended is not None)
        assert self.ended in (None, row["status"])
        assert [each["attempt"] for each in attempts] == list(range(1, len(self.runs) + 1))
        assert row["attempt"] == len(self.runs)
        assert row["attempts"] == len(self.runs) - self.uncounted <= row["max_attempts"]
        assert sum(each["counted"] for each in attempts) == row["attempts"]
        assert [each["outcome"] for each in attempts].count("running") == int(self.live)
        assert [each["run_token"] for each in attempts] == [run.lease.run_token for run in self.runs]


_DOES: dict[str, Callable[[History, int], Coroutine[Any, Any, None]]] = {
    name: getattr(History, name) for name in _STEPS
}
_HISTORIES = st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 5)), min_size=5, max_size=25)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_HISTORIES, max_attempts=st.integers(1, 4))
async def test_any_history_of_a_job_keeps_the_invariants(
    database: Database, steps: list[tuple[str, int]], max_attempts: int
) -> None:
    tenant = await a_tenant(database)
    kind = f"k{tenant.hex}"
    job_id = await queued(database, tenant_id=tenant, kind=kind, max_attempts=max_attempts)
    await register(database, kind, "safe")
    history = History(database, kind, job_id)
    await history.step("claim", 0)
    for name, pick in steps:
        await history.step(name, pick)


async def test_a_crash_loop_ends(database: Database) -> None:
    """Invariant 10: attempts are counted at the claim, so a run that takes its worker down stops coming back."""
    tenant = await a_tenant(database)
    job_id = await queued(database, tenant_id=tenant, max_attempts=3)
    await register(database, "write", "safe")
    history = History(database, "write", job_id)
    for _ in range(3):
        await history.step("claim", 0)
        await history.step("reap", 0)
    assert history.ended is JobStatus.FAILED
    assert (await job_row(database, job_id))["error_class"] == "exhausted"
