"""The end of a run, written once and under a deadline of its own."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, assert_never

import anyio
import stamina
import structlog

from schema.database import Database
from schema.drafts import CancelBy
from schema.endings import Ending
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused
from schema.hints import HintSender
from schema.runs import AttemptOutcome, Failure, cancels_among, leases_of
from worker.appender import Appender
from worker.ender import Ender
from worker.leases import LeaseKeeper
from worker.log_writer import LogWriter, WriterBroken
from worker.reaper import put_again
from worker.verdicts import Again, Cancelled, Over, Verdict

# A result is worth waiting for a PostgreSQL that restarts; a run that cannot be ended is left to the reaper.
SAVE_SECONDS = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Result:
    """What the handler returned, fit to be stored."""

    value: Any


End = Result | Verdict


@dataclass(frozen=True, slots=True)
class Services:
    """What every run of a worker works with."""

    database: Database
    appender: Appender
    ender: Ender
    keeper: LeaseKeeper
    hints: HintSender


def refused(code: str) -> Over:
    """PostgreSQL will not hold what the handler made."""
    message = "The handler's output cannot be stored; its worker's log says why: mend the handler."
    return Over(Failure(code, "permanent", message), AttemptOutcome.FAILED)


async def save(services: Services, writer: LogWriter, end: End) -> None:
    """Write the end, under a deadline of its own that no other cancellation shortens. Raises LeaseLost."""
    facts = {"job_id": str(writer.job_id), "attempt": writer.lease.attempt}
    with anyio.move_on_after(SAVE_SECONDS, shield=True) as scope:
        try:
            # Nearly always the first try does; a retry loop around it costs as much as all the rest of a short run.
            with suppress(DatabaseUnavailable, DatabaseBusy):
                await _save_once(services, writer, end)
                return
            await _save_again(services, writer, end)
        except (DatabaseUnavailable, DatabaseBusy, WriteRefused):
            log.error("run not ended", **facts)
    if scope.cancelled_caught:
        log.error("run not ended", **facts)


async def _save_again(services: Services, writer: LogWriter, end: End) -> None:
    async for attempt in stamina.retry_context(
        on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=SAVE_SECONDS, wait_max=2.0
    ):
        with attempt:
            await _save_once(services, writer, end)


async def _save_once(services: Services, writer: LogWriter, end: End) -> None:
    try:
        last_seq = await services.appender.flush(writer)
    except WriterBroken:
        _, last_seq = await _lease(services, writer)
        end = refused("event_refused") if isinstance(end, Result) else end
    try:
        done = await _write(services, writer, end, last_seq)
    except WriteRefused:
        end = refused("result_refused")
        done = await _write(services, writer, end, last_seq)
    if not done and not isinstance(end, Cancelled) and await _lease(services, writer) == (True, last_seq):
        # The lease is ours and the log is where we think: somebody asked to cancel in the last moment.
        end = Cancelled()
        wanted = await cancels_among(services.database, [writer.job_id])
        services.appender.say_cancel_requested(writer, wanted.get(writer.job_id, CancelBy.USER))
        last_seq = await services.appender.flush(writer)
        done = await _write(services, writer, end, last_seq)
    _tell(services, writer, end, done=done, last_seq=last_seq)


async def _write(services: Services, writer: LogWriter, end: End, last_seq: int) -> bool:
    lease = writer.lease
    match end:
        case Result():
            return await services.ender.end(Ending.succeeded(lease, last_seq, end.value))
        case Over():
            return await services.ender.end(Ending.failed(lease, last_seq, end.failure, end.outcome))
        case Cancelled():
            return await services.ender.end(Ending.cancelled(lease, last_seq, end.outcome))
        case Again():
            return await put_again(services.database, lease, last_seq, end)
        case other:
            assert_never(other)


async def _lease(services: Services, writer: LogWriter) -> tuple[bool, int]:
    """Whether the lease is ours, and where the log is."""
    leases = await leases_of(services.database, [writer.job_id])
    run_token, last_seq = leases.get(writer.job_id, (None, writer.last_seq))
    return run_token == writer.lease.run_token, last_seq


def _tell(services: Services, writer: LogWriter, end: End, *, done: bool, last_seq: int) -> None:
    # Not done: lost, or done by a try whose answer was lost. Either way the readers should look.
    log.info(
        "run ended",
        job_id=str(writer.job_id),
        attempt=writer.lease.attempt,
        end=type(end).__name__.lower(),
        confirmed=done,
    )
    services.hints.events(writer.job_id, last_seq + 1)
    if isinstance(end, Again):
        services.hints.work()
