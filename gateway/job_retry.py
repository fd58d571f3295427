"""Trying an ended job again: a new job with the same input, recorded once for each idempotency key."""

from functools import partial

from gateway.admission import record_once
from gateway.auth import Caller
from gateway.gateway import Gateway
from gateway.job_creation import Recorded
from gateway.job_replay import KeyOf, find_replay
from gateway.problems import Problem
from gateway.strict_json import digest
from schema.creation import Retry, retry_job
from schema.job_ids import new_job_id
from schema.jobs import Job, JobStatus, Reach, get_job


async def record_retry(
    gateway: Gateway, caller: Caller, old: Job, key: str, traceparent: str | None = None
) -> Recorded:
    """The job that this request makes or made; when it returns, the job is committed.

    It belongs to the tenant and the user of the old one, whoever asks: an input does not change hands.
    Raises Problem idempotency_key_reused, not_finished, already_finished, not_found, queue_full, quota_exceeded,
    cost_limit_required.
    """
    use = KeyOf(old.tenant_id, caller.user or "", key, digest({"retry_of": str(old.id)}))
    earlier = await find_replay(gateway, use)
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    _check_ended(old)
    retry = Retry(new_job_id(), old.id, use.tenant_id, use.scope, use.key, use.request_hash, traceparent)
    earlier = await record_once(gateway, use, partial(retry_job, gateway.database, retry))
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    made = await get_job(gateway.database, Reach(use.tenant_id), retry.id)
    if made is None:
        raise Problem("not_found", "The input of this job is gone. Create a job with an input of its own.")
    return Recorded(made, replayed=False)


def _check_ended(old: Job) -> None:
    if not old.status.ended:
        raise Problem("not_finished", "The job has not ended yet. Wait for its end, or cancel it.")
    if old.status is JobStatus.SUCCEEDED:
        raise Problem("already_finished", "The job has succeeded; there is nothing to try again. Create another job.")
