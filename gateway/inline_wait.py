"""A request that waits for the end of the job that it made: docs/protocol.md 3, Prefer: wait."""

from functools import partial

import stamina
import structlog
from starlette.requests import Request

from gateway.cancellation import ask_to_cancel
from gateway.client_watch import while_client_stays
from gateway.gateway import Gateway
from gateway.job_creation import Recorded
from gateway.job_replay import see_job
from gateway.log_watch import wait_for_end
from schema.drafts import CancelBy
from schema.errors import DatabaseBusy, DatabaseUnavailable, LogBroken
from schema.jobs import Job, Reach

# A wish to cancel is worth a restart of PostgreSQL; nobody waits for it any more.
WISH_SECONDS = 30.0

log = structlog.get_logger()


async def wait_inline(request: Request, gateway: Gateway, recorded: Recorded, wait_s: int) -> Job:
    """The job as it is once it has ended, the time is over, the gateway drains or the client has left.

    Where this request made the job and asked for it, a client that leaves before the end takes the job with it. A
    gateway that is about to stop cuts its clients off itself, so then nobody has left.
    """
    if recorded.job.status.ended:
        return recorded.job
    stayed = await while_client_stays(request.receive, partial(_wait, gateway, recorded.job, wait_s))
    if not stayed and recorded.ends_with_client and not gateway.draining.is_set():
        await _cancel(gateway, recorded.job)
    return await see_job(gateway, recorded.job.tenant_id, recorded.job.id)


async def _wait(gateway: Gateway, job: Job, wait_s: int) -> bool:
    """True, so that an end of the wait is not taken for a client that left."""
    try:
        await wait_for_end(gateway, job.id, job.last_event_id, wait_s)
    except (DatabaseUnavailable, DatabaseBusy, LogBroken) as error:
        # The job is recorded: who waited is told what is known, and may ask again.
        log.warning("wait ended", job_id=str(job.id), error=type(error).__name__)
    return True


async def _cancel(gateway: Gateway, job: Job) -> None:
    try:
        async for attempt in stamina.retry_context(
            on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=WISH_SECONDS, wait_max=2.0
        ):
            with attempt:
                await ask_to_cancel(gateway, Reach(job.tenant_id), job.id, CancelBy.DISCONNECT)
    except (DatabaseUnavailable, DatabaseBusy) as error:
        log.warning("job of a client that left not cancelled", job_id=str(job.id), error=type(error).__name__)
