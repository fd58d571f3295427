"""All that can happen to jobs, by several workers and callers in any order, now and then truly at once; after each
step everything that the design calls invariant is looked up in the tables.

OUTLIVE_TEST_MACHINE_EXAMPLES is how many histories are tried; each is up to 40 steps long.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from schema.calls import CallStart, open_call
from schema.creation import JobMoney, NewJob, Retry, create_job, retry_job
from schema.job_ids import new_job_id
from schema.limits import remove_limit
from schema.money import CostLimitRequired, NotAdmitted, QueueFull, QuotaExceeded
from schema.runs import ClaimedRun, store_checkpoint
from schema.waiting import expire_unstarted
from tests.database.crew import MAX_QUEUED, QUOTA_USD, WORKERS, Crew
from tests.support.jobs import ENDS, a_job, opened
from worker.providers.provider import CallOutcome
from worker.turns import Turns

EXAMPLES = int(os.environ.get("OUTLIVE_TEST_MACHINE_EXAMPLES", "40"))
Work = Callable[[], Coroutine[Any, Any, object]]

pick = st.integers(0, 40)
worker_of = st.integers(0, WORKERS - 1)
amounts = st.sampled_from([None, Decimal(0), Decimal("0.5"), Decimal(2)])
scope_of = st.integers(0, 3)


class Jobs(Crew):
    """The rules: each does something and says what its answer must be; the invariants are looked up after each."""

    @initialize(count=st.integers(1, 4), worker=worker_of)
    def begin(self, count: int, worker: int) -> None:
        """Without runs most rules would have nothing to do."""
        self.create(1, count % 3, Decimal("0.5"), 5, 3)
        self.claim(worker, count)

    @invariant()
    def all_invariants_hold(self) -> None:
        seen = self.look()
        seen.check()
        seen.check_follows(self.seen)
        self.seen = seen

    # ------------------------------------------------------------ callers

    @rule(tenant=st.integers(0, 1), kind=st.integers(0, 2), amount=amounts, number=pick, tries=st.integers(1, 3))
    def create(self, tenant: int, kind: int, amount: Decimal | None, number: int, tries: int) -> None:
        new = a_job(
            self.tenants[tenant].id,
            kind=self.kinds[kind],
            provider=[*self.providers, None][number % 3],
            max_attempts=tries,
            on_unknown=["auto", "retry", "fail"][number % 2 + number % 3 // 2],
            run_at=datetime.now(UTC) + timedelta(hours=1) if number % 4 == 0 else None,
            priority=number % 5,
            money=JobMoney(max_cost_usd=amount or None, call_usd=amount and amount / 2, reserved_usd=amount),
        )
        if refused := self.refusal(new):
            with pytest.raises(refused):
                self.run(create_job, self.database, new)
            return
        assert self.run(create_job, self.database, new)
        # Under a quota the account is locked first, so what is replayed has to be found by its key before.
        if tenant == 0:
            assert not self.run(create_job, self.database, replace(new, id=new_job_id()))

    def refusal(self, new: NewJob) -> type[NotAdmitted] | None:
        if new.tenant_id != self.tenants[1].id:
            return None
        mine = [job for job in self.seen.jobs.values() if job["tenant_id"] == new.tenant_id]
        if sum(job["status"] in {"queued", "scheduled"} for job in mine) >= MAX_QUEUED:
            return QueueFull
        if new.money.reserved_usd is None:
            return CostLimitRequired
        used = sum((a["reserved_usd"] + a["charged_usd"] for a in self.seen.accounts), Decimal(0))
        over = new.money.reserved_usd != 0 and used + new.money.reserved_usd > QUOTA_USD
        return QuotaExceeded if over else None

    @precondition(lambda self: self.known)
    @rule(number=pick)
    def cancel(self, number: int) -> None:
        job = self.job(number) if number % 3 == 0 else None
        job_id = job["id"] if job else self.any_run(number).lease.job_id
        assert self.run(self.do_cancel, job_id).was == self.seen.jobs[job_id]["status"]

    @rule(number=pick)
    def retry(self, number: int) -> None:
        if job := self.job(number):
            wish = Retry(new_job_id(), job["id"], job["tenant_id"], "", uuid.uuid4().hex, bytes(32), None)
            with suppress(NotAdmitted):
                assert self.run(retry_job, self.database, wish) == (job["status"] in {"failed", "cancelled"})

    @rule(scope=scope_of, most=st.sampled_from([None, None, 0, 1, 2, 5, 8]))
    def limit(self, scope: int, most: int | None) -> None:
        if most is None:
            known = self.scopes[scope] in self.seen.limits
            assert self.run(remove_limit, self.database, self.scopes[scope]) == known
        else:
            self.run(self.do_limit, scope, most)

    # ------------------------------------------------------------ workers

    @rule(worker=worker_of, wanted=st.integers(1, 4))
    def claim(self, worker: int, wanted: int) -> None:
        for number in range(2):
            self.create(0, (worker + number) % 3, Decimal("0.5"), wanted + 4 * number + 1, 3)
        self.seen = self.look()
        runs = self.run(self.do_claim, worker, wanted)
        for run in runs:
            old = self.seen.jobs[run.lease.job_id]
            assert old["status"] == "queued"
            assert old["attempts"] < old["max_attempts"]
        assert len(runs) <= wanted
        if len(runs) < wanted:
            now = self.look()
            left = [job for job in now.jobs.values() if job["status"] == "queued"]
            assert all(now.is_blocked(job) or job["attempts"] == job["max_attempts"] for job in left)

    @rule(worker=worker_of, restarts=st.booleans())
    def beat(self, worker: int, restarts: bool) -> None:
        """Or it crashed: then it knows nothing of its runs any more, and their leases are there still."""
        if restarts:
            self.held[worker], self.turns[worker] = [], Turns()
        beats = self.run(self.do_beat, worker)
        # Two runs of one job in one worker are asked about as one; worker/leases.py never sends both.
        last = {run.lease.job_id: run for run in self.held[worker]}
        for job_id, run in last.items():
            assert beats[job_id].lost != self.is_live(run)
            assert beats[job_id].renewed == self.is_live(run)

    @precondition(lambda self: self.known)
    @rule(number=pick, count=st.integers(1, 3), off=st.sampled_from([0, 0, 0, -1, 1]))
    def append(self, number: int, count: int, off: int) -> None:
        run = self.any_run(number)
        written = self.run(self.do_append, run, self.seq(run) + off, count)
        assert bool(written) == (self.is_live(run) and off == 0)

    @precondition(lambda self: self.known)
    @rule(number=pick, outcome=st.sampled_from([None, *CallOutcome]), cost=amounts)
    def call(self, number: int, outcome: CallOutcome | None, cost: Decimal | None) -> None:
        """A request that is sent and closed, or stays open."""
        run = self.any_run(number)
        self.calls += 1
        opened = self.run(open_call, self.database, run.lease, CallStart(self.calls, self.providers[0], None))
        assert opened == self.is_live(run)
        if opened and outcome is not None:
            assert self.run(self.do_close, run, self.calls, outcome, cost)

    @precondition(lambda self: self.known)
    @rule(number=pick)
    def checkpoint(self, number: int) -> None:
        run = self.any_run(number)
        assert self.run(store_checkpoint, self.database, run.lease, self.seq(run), {"n": number}) == self.is_live(run)

    @precondition(lambda self: self.known)
    @rule(number=pick, how=st.sampled_from(["succeeded", "failed", "budget", "cancelled"]))
    def end(self, number: int, how: str) -> None:
        run = self.any_run(number)
        expected = self.is_live(run) if how == "cancelled" else self.may_go_on(run)
        assert self.run(self.do_end, run, how) == expected

    @rule(worker=worker_of)
    def end_all(self, worker: int) -> None:
        ended = self.run(self.do_end_all, worker)
        assert ended == {run.lease.job_id for run in self.held[worker] if self.may_go_on(run)}
        self.held[worker] = []

    @precondition(lambda self: self.known)
    @rule(number=pick, why=st.sampled_from(["transient_error", "throttled", "released"]))
    def back(self, number: int, why: str) -> None:
        run = self.any_run(number)
        assert self.run(self.do_back, run, why) == self.may_go_on(run)

    # ------------------------------------------------------------ what nobody holds

    @precondition(lambda self: self.known)
    @rule(number=pick)
    def lose(self, number: int) -> None:
        """A lease runs out, and a worker looks."""
        run = self.any_run(number)
        was_live = self.is_live(run)
        self.run(self.do_lose, run)
        status = self.look().jobs[run.lease.job_id]["status"]
        if was_live and not self.may_go_on(run):
            assert status == "cancelled"
        assert not was_live or status != "running"

    @rule(number=pick)
    def time_passes(self, number: int) -> None:
        """All that is scheduled is due, or it is too late for a job that was not begun."""
        if number % 2:
            self.run(self.do_due)
        elif job := self.job(number):
            unstarted = "finished_at IS NULL AND attempt = 0"
            sql = f"UPDATE outlive.ai_jobs SET start_before = now() WHERE id = $1 AND {unstarted}"
            self.run(self.database.execute, sql, job["id"])
            late = self.run(expire_unstarted, self.database, 100)
            waits = job["status"] in {"queued", "scheduled"} and job["attempt"] == 0
            assert set(late) == ({job["id"]} if waits else set())

    # ------------------------------------------------------------ two of them truly at once

    @precondition(lambda self: self.known)
    @rule(first=pick, second=pick, kinds=st.tuples(pick, pick), worker=worker_of)
    def at_once(self, first: int, second: int, kinds: tuple[int, int], worker: int) -> None:
        """On one run as often as on two; whoever comes second must find it done."""
        runs = self.any_run(first), self.any_run(second if second % 2 else first)
        works = [self._one_of(kind, run, worker) for kind, run in zip(kinds, runs, strict=True)]
        self.run(_both, *works)

    def _one_of(self, kind: int, run: ClaimedRun, worker: int) -> Work:
        works: list[Work] = [
            partial(self.do_claim, worker, 2),
            partial(self.do_end, run, "succeeded"),
            partial(self.do_end, run, "failed"),
            partial(self.do_end_all, worker),
            partial(self.do_cancel, run.lease.job_id),
            partial(self.do_back, run, "released"),
            partial(self.do_back, run, "transient_error"),
            partial(self.do_lose, run),
            partial(self.do_beat, worker),
            partial(self.do_append, run, self.seq(run)),
            partial(self.do_limit, kind % 4, 1),
            partial(store_checkpoint, self.database, run.lease, self.seq(run), {}),
        ]
        return works[kind % len(works)]

    def teardown(self) -> None:
        """Whatever happened, it can be brought to an end, and then nothing is held or reserved."""
        self.run(self.do_end_everything)
        seen = self.look()
        seen.check()
        assert all(job["status"] in ENDS for job in seen.jobs.values())
        assert all(account["reserved_usd"] == 0 for account in seen.accounts)
        assert all(slot["holder"] is None for slots in seen.permits.values() for slot in slots)
        for scope in seen.limits:
            self.run(remove_limit, self.database, scope)


async def _both(*works: Work) -> None:
    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(work)


@pytest.mark.timeout(60 + 5 * EXAMPLES)
def test_any_history_of_jobs_and_workers_keeps_the_invariants(database_url: str) -> None:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(opened(database_url, 4)) as database:
        machine = type("Machine", (Jobs,), {"database": database, "portal": portal})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
