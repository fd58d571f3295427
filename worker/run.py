"""One claimed run, from its start to exactly one end.

    handler --emit--> writer --appender--> log     every piece is committed before anybody sees it
       |
       '----call--> provider --pieces--> writer    the ledger row is committed before the request is sent

    result             saved under a deadline of its own, even if the attempt's has just passed
    call failed        the verdict of its class
    time limit         unknown where a request was out, else transient
    lease lost         nothing: whoever has the job now writes its log
    lease given up     the unknown rule, once PostgreSQL answers again
    handed back        at shutdown, where running it twice is harmless
    cancelled          said in the log at once; the job ends cancelled whatever the handler still had
    budget passed      the same, but that the job fails

A handler is stopped by cancelling it; what it had open is closed on its way out, and then the end is written.
"""

import traceback
from enum import Enum, auto
from typing import assert_never

import anyio
import orjson
import structlog

from schema.drafts import CancelBy
from schema.runs import AttemptOutcome, ClaimedRun, NextReason
from schema.text import clean_json
from worker.budget import Budget
from worker.caller import Caller, Wishes
from worker.context import Context
from worker.ending import Result, Services, refused, save
from worker.handlers.kind import Kind, Repeat
from worker.leases import OVERTIME_SECONDS
from worker.log_writer import LeaseLost, WriterBroken
from worker.providers.provider import CallFailed, Provider
from worker.verdicts import (
    Cancelled,
    Circumstances,
    Verdict,
    on_budget,
    on_call_failed,
    on_handler_error,
    on_released,
    on_transient,
    on_unknown,
)

log = structlog.get_logger()


class Stop(Enum):
    """Why a handler was stopped from outside."""

    LEASE_LOST = auto()
    LEASE_GIVEN_UP = auto()
    HAND_BACK = auto()
    OUT_OF_TIME = auto()
    CANCEL = auto()
    BUDGET = auto()


class Run:
    """A claimed job in the hands of its handler; to the lease keeper it is a Holder."""

    def __init__(
        self, services: Services, claimed: ClaimedRun, kind: Kind, provider: Provider | None, held_until: float
    ) -> None:
        self.lease = claimed.lease
        self.held_until = held_until
        self.renew_until = held_until + kind.time_limit_s + OVERTIME_SECONDS
        self._services = services
        self._claimed = claimed
        self._kind = kind
        self._writer = services.appender.open(claimed.lease, claimed.last_seq)
        self._budget = Budget(claimed.exposure)
        basics = (services.database, services.appender, self._writer)
        wishes = Wishes(self._pass_budget, self._is_unwanted)
        self._caller = Caller(*basics, provider, claimed.model, self._budget, wishes)
        self._context = Context(*basics, self._caller, claimed.checkpoint)
        self._scope = anyio.CancelScope()
        self._stop: Stop | None = None
        self._is_ending = False

    @property
    def is_safe_to_hand_back(self) -> bool:
        """Whether another worker may run the job again without harm."""
        now = self._circumstances()
        return now.is_repeatable or now.can_reattach

    def lose_lease(self) -> None:
        """Somebody else has the job."""
        self.stop(Stop.LEASE_LOST)

    def give_up_lease(self) -> None:
        """PostgreSQL was silent for too long; stop before the lease can have run out."""
        self.stop(Stop.LEASE_GIVEN_UP)

    def cancel(self, by: CancelBy = CancelBy.USER) -> None:
        """Somebody wants the job to end: say so in the log, then close what is open."""
        # Once the end is being written nobody else may add to the log; the end looks at the wish by itself.
        if self._stop is None and not self._is_ending:
            self._services.appender.say_cancel_requested(self._writer, by)
            self.stop(Stop.CANCEL)

    def _pass_budget(self) -> None:
        """Its calls cost more than the job may."""
        if self._stop is None and not self._is_ending:
            self._services.appender.say_cancel_requested(self._writer, CancelBy.BUDGET)
            self.stop(Stop.BUDGET)

    def _is_unwanted(self) -> bool:
        """Whether nobody wants what its calls still make; else another attempt may go on with it."""
        return self._stop in {Stop.CANCEL, Stop.BUDGET}

    def stop(self, why: Stop) -> None:
        """Stop the handler; the first reason stands."""
        if self._stop is None:
            self._stop = why
            self._scope.cancel()

    async def execute(self) -> None:
        """Run the handler and write the end."""
        self._services.keeper.hold(self)
        try:
            end = await self._handle()
            self._is_ending = True
            if end is not None:
                await save(self._services, self._writer, end)
        except LeaseLost:
            log.warning("run lost its lease", job_id=str(self.lease.job_id), attempt=self.lease.attempt)
        finally:
            self._services.keeper.release(self)

    async def _handle(self) -> Result | Verdict | None:
        """The handler's result, or what its failure means; None where this run has nothing more to say."""
        with self._scope, anyio.move_on_after(self._kind.time_limit_s) as limit:
            end = await self._call_handler()
            # What a handler still makes of it after its calls cost too much is not taken.
            if self._stop is not Stop.BUDGET:
                return end
        return self._time_limit() if limit.cancelled_caught else self._stopped()

    async def _call_handler(self) -> Result | Verdict:
        try:
            await self._caller.look_back()
            value = clean_json(await self._kind.handler(self._context, self._claimed.input))
            orjson.dumps(value)
            return Result(value)
        except WriterBroken:
            return refused("event_refused")
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - what a handler raises ends its job and never the worker
            if (failed := _failed_call(error)) is not None:
                return on_call_failed(failed.receipt, self._circumstances())
            log.error("handler failed", job_id=str(self.lease.job_id), kind=self._kind.name, **_origin(error))
            return on_handler_error()

    def _circumstances(self) -> Circumstances:
        claimed = self._claimed
        return Circumstances(
            attempt=self.lease.attempt,
            attempts=claimed.attempts,
            max_attempts=claimed.max_attempts,
            on_unknown=claimed.on_unknown,
            repeat=self._kind.repeat,
            has_checkpoint=self._context.checkpoint is not None,
            left=self._caller.left,
            exposure=self._budget.exposure,
            throttled_s=claimed.throttled_s,
            idle_releases=claimed.idle_releases,
        )

    def _time_limit(self) -> Verdict:
        if self._caller.has_spent:
            now = self._circumstances()
            return on_unknown("time_limit", now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)
        return on_transient("time_limit", self._circumstances())

    def _stopped(self) -> Verdict | None:
        match self._stop:
            case Stop.LEASE_LOST | None:
                return None
            case Stop.CANCEL:
                return Cancelled()
            case Stop.BUDGET:
                return on_budget()
            case Stop.HAND_BACK:
                return self._released()
            case Stop.LEASE_GIVEN_UP | Stop.OUT_OF_TIME:
                return self._interrupted()
            case other:
                assert_never(other)

    def _interrupted(self) -> Verdict:
        if self._caller.has_spent or self._kind.repeat is Repeat.NEVER:
            now = self._circumstances()
            return on_unknown("interrupted", now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)
        return self._released()

    def _released(self) -> Verdict:
        has_written = self._writer.has_written or self._context.has_stored
        return on_released(self._circumstances(), has_written=has_written)


def _failed_call(error: Exception) -> CallFailed | None:
    """The failed call, if it is that and nothing else; a handler's own task group wraps it, once for each level."""
    if isinstance(error, ExceptionGroup):
        calls, others = error.split(CallFailed)
        return _failed_call(calls.exceptions[0]) if calls and not others else None
    return error if isinstance(error, CallFailed) else None


def _origin(error: BaseException) -> dict[str, str]:
    """What an exception was and where it rose, without its text."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {"error": type(error).__name__, "where": f"{last.filename}:{last.lineno} in {last.name}"}
