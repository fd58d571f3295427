"""The wish to cancel a job: stored, then told to whoever has to hear of it."""

from uuid import UUID

from gateway.gateway import Gateway
from schema.drafts import CancelBy
from schema.jobs import Cancel, JobStatus, Reach, cancel_job


async def ask_to_cancel(gateway: Gateway, reach: Reach, job_id: UUID, by: CancelBy) -> Cancel | None:
    """What the wish met; None where there is no such job in reach. Raises DatabaseUnavailable, DatabaseBusy."""
    cancel = await cancel_job(gateway.database, reach, job_id, by)
    if cancel is None:
        return None
    if cancel.last_seq is not None:
        gateway.hints.events(job_id, cancel.last_seq)
    elif cancel.was is JobStatus.RUNNING:
        gateway.hints.cancel(job_id)
    return cancel
