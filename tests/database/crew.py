"""Several workers and callers as a state machine can move them, and what it saw of the tables after the last step."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar, TypeVar
from uuid import UUID

from anyio.from_thread import BlockingPortal
from hypothesis.stateful import RuleBasedStateMachine

from schema.calls import CallEnd, close_call
from schema.database import Database
from schema.drafts import CancelBy
from schema.endings import Ending, end_run, end_runs
from schema.events import append
from schema.hints import HintSender
from schema.jobs import Cancel, Reach, cancel_job
from schema.limits import fit_surplus, set_limit
from schema.runs import Ask, AttemptOutcome, Beat, ClaimedRun, Failure, NextReason, claim, heartbeat, put_back
from schema.tenants import Tenant, Terms, add_tenant
from schema.waiting import promote_due
from tests.support.jobs import expire, register, says
from tests.support.snapshots import Row, Snapshot, look
from worker.external import external_event
from worker.providers.provider import CallOutcome
from worker.reaper import Reaper
from worker.turns import Turns

T = TypeVar("T")

QUOTA_USD = Decimal(5)
MAX_QUEUED = 6
WORKERS = 3
EVERYBODY = Reach(None)
PERMANENT = Failure("test", "permanent", "A test.")
BUDGET = Failure("test", "budget", "A test.")


class Crew(RuleBasedStateMachine):
    """What can be done, each as one `do_`, and what was `seen` after the last step.

    Tenants, kinds and providers are its own; the limit `global` it shares, and takes away at its end.
    """

    database: ClassVar[Database]
    portal: ClassVar[BlockingPortal]

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex[:12]
        self.kinds = [f"{repeat}{self.name}" for repeat in ("safe", "checkpoint", "never")]
        self.providers = [f"p{self.name}", f"q{self.name}"]
        self.turns = [Turns() for _ in range(WORKERS)]
        self.held: list[list[ClaimedRun]] = [[] for _ in range(WORKERS)]
        self.known: list[ClaimedRun] = []
        self.calls = 0
        self.tenants = self.run(self._furnish)
        self.seen = self.look()

    def run(self, work: Callable[..., Awaitable[T]], *values: object) -> T:
        """In the loop of the pool."""
        return self.portal.call(work, *values)

    async def _furnish(self) -> list[Tenant]:
        for kind in self.kinds:
            await register(self.database, kind, kind.removesuffix(self.name))
        payer = Terms(weight=2, max_queued=MAX_QUEUED, quota_usd=QUOTA_USD, quota_period="total")
        return [
            await add_tenant(self.database, f"{n}{self.name}", terms) for n, terms in (("a", Terms()), ("b", payer))
        ]

    def look(self) -> Snapshot:
        return self.run(look, self.database, [tenant.id for tenant in self.tenants])

    @property
    def scopes(self) -> list[str]:
        return ["global", f"provider:{self.providers[0]}", *(f"tenant:{tenant.name}" for tenant in self.tenants)]

    def job(self, number: int) -> Row | None:
        jobs = list(self.seen.jobs.values())
        return jobs[number % len(jobs)] if jobs else None

    def any_run(self, number: int) -> ClaimedRun:
        """Mostly one that is live; else one whose job somebody else runs now; else any that ever was."""
        live = [run for run in self.known if self.is_live(run)]
        stale = [run for run in self.known if run.lease.job_id in self.seen.leases and run not in live]
        among = [live, live, stale, self.known][number % 4] or self.known
        return among[-1 - number // 4 % len(among)]

    def is_live(self, run: ClaimedRun) -> bool:
        lease = self.seen.leases.get(run.lease.job_id)
        return lease is not None and lease["run_token"] == run.lease.run_token

    def may_go_on(self, run: ClaimedRun) -> bool:
        """Whether nobody wants its job to end."""
        return self.is_live(run) and self.seen.jobs[run.lease.job_id]["cancel_requested_at"] is None

    def seq(self, run: ClaimedRun) -> int:
        """Where the job's log is, so that only the token can be wrong."""
        lease = self.seen.leases.get(run.lease.job_id)
        return int(lease["last_seq"] if lease else self.seen.jobs[run.lease.job_id]["last_seq"])

    async def do_cancel(self, job_id: UUID) -> Cancel:
        met = await cancel_job(self.database, EVERYBODY, job_id, CancelBy.USER)
        assert met is not None
        return met

    async def do_limit(self, scope: int, most: int) -> None:
        await set_limit(self.database, self.scopes[scope], most)

    async def do_claim(self, worker: int, wanted: int) -> list[ClaimedRun]:
        turns = self.turns[worker]
        ask = Ask(f"w{worker}", self.kinds, self.providers, wanted, 60, turns.virtual_now, turns.tags)
        claimed = await claim(self.database, ask)
        turns.took(claimed.turns)
        self.held[worker] += claimed.runs
        self.known += claimed.runs
        return list(claimed.runs)

    async def do_beat(self, worker: int) -> dict[UUID, Beat]:
        last = {run.lease.job_id: run.lease for run in self.held[worker]}
        return await heartbeat(self.database, list(last.values()), 60)

    async def do_append(self, run: ClaimedRun, base_seq: int, count: int = 1) -> set[UUID]:
        return await append(self.database, [says(run, base_seq, *"abc"[:count])])

    async def do_close(self, run: ClaimedRun, call: int, outcome: CallOutcome, cost: Decimal | None) -> bool:
        event = external_event(run.lease.attempt, call, outcome)
        one = replace(says(run, self.seq(run)), drafts=[event])
        end = CallEnd(outcome, cost_usd=cost, cost_source=None if cost is None else "provider")
        async with self.database.transaction() as connection:
            return bool(await append(connection, [one])) and await close_call(connection, run.lease, call, end)

    async def do_end(self, run: ClaimedRun, how: str) -> bool:
        return await end_run(self.database, self.ending(run, how))

    async def do_end_all(self, worker: int) -> set[UUID]:
        """In one statement, one of each job, as worker/ender.py does."""
        last = {run.lease.job_id: run for run in self.held[worker]}
        endings = [self.ending(run, "succeeded") for run in last.values()]
        return await end_runs(self.database, endings) if endings else set()

    async def do_back(self, run: ClaimedRun, why: str) -> bool:
        released = why == "released"
        return await put_back(
            *(self.database, run.lease, self.seq(run), NextReason(why)),
            AttemptOutcome.RELEASED if released else AttemptOutcome.FAILED,
            delay_s=0 if released else 600,
            counted=why == "transient_error",
            idle=released,
        )

    async def do_lose(self, run: ClaimedRun) -> None:
        if self.is_live(run):
            await expire(self.database, run.lease.job_id)
        await self.do_reap()

    async def do_reap(self) -> None:
        await Reaper(self.database, HintSender(self.database))._look()

    async def do_due(self) -> None:
        sql = "UPDATE outlive.ai_jobs SET run_at = now() WHERE status = 'scheduled' AND tenant_id = ANY($1)"
        await self.database.execute(sql, [tenant.id for tenant in self.tenants])
        await promote_due(self.database, 100)

    async def do_end_everything(self) -> None:
        for job_id in self.seen.jobs:
            await self.do_cancel(job_id)
            await expire(self.database, job_id)
        await self.do_reap()
        await fit_surplus(self.database)

    def ending(self, run: ClaimedRun, how: str) -> Ending:
        match how:
            case "succeeded":
                return Ending.succeeded(run.lease, self.seq(run), {"text": "x"})
            case "cancelled":
                return Ending.cancelled(run.lease, self.seq(run), AttemptOutcome.CANCELLED)
            case _:
                failure = BUDGET if how == "budget" else PERMANENT
                return Ending.failed(run.lease, self.seq(run), failure, AttemptOutcome.FAILED)
