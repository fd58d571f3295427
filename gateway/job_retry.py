"""Trying an ended job again: a new job with the same input, recorded once for each idempotency key."""

from gateway.auth import Caller
from gateway.gateway import Gateway
from gateway.job_creation import KeyOf, Recorded, find_replay, see_job
from gateway.problems import Problem
from gateway.strict_json import digest
from schema.job_ids import new_job_id
from schema.jobs import Job, JobStatus, Retry, retry_job


async def record_retry(
    gateway: Gateway, caller: Caller, old: Job, key: str, traceparent: str | None = None
) -> Recorded:
    """The job that this request makes or made; when it returns, the job is committed.

    It belongs to the tenant and the user of the old one, whoever asks: an input does not change hands.
    Raises Problem idempotency_key_reused, not_finished, already_finished, not_found.
    """
    use = KeyOf(old.tenant_id, caller.user or "", key, digest({"retry_of": str(old.id)}))
    earlier = await find_replay(gateway, use)
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    _check_ended(old)
    retry = Retry(new_job_id(), old.id, use.tenant_id, use.scope, use.key, use.request_hash, traceparent)
    if await retry_job(gateway.database, retry):
        gateway.hints.work()
        return Recorded(await see_job(gateway, use.tenant_id, retry.id), replayed=False)
    earlier = await find_replay(gateway, use)
    if earlier is None:
        raise Problem("not_found", "The input of this job is gone. Create a job with an input of its own.")
    return Recorded(earlier, replayed=True)


def _check_ended(old: Job) -> None:
    if not old.status.ended:
        raise Problem("not_finished", "The job has not ended yet. Wait for its end, or cancel it.")
    if old.status is JobStatus.SUCCEEDED:
        raise Problem("already_finished", "The job has succeeded; there is nothing to try again. Create another job.")
