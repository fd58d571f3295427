"""The job that an idempotency key made before."""

from dataclasses import dataclass
from uuid import UUID

from gateway.gateway import Gateway
from gateway.problems import Problem
from schema.job_ids import JobId
from schema.jobs import Job, Reach, find_by_key, get_job


@dataclass(frozen=True, slots=True)
class KeyOf:
    """An idempotency key where it belongs, with the hash of what it stands for."""

    tenant_id: UUID
    scope: str
    key: str
    request_hash: bytes


async def find_replay(gateway: Gateway, of: KeyOf) -> Job | None:
    """The job that the key made, if any. Raises Problem idempotency_key_reused where it stands for something else."""
    use = await find_by_key(gateway.database, of.tenant_id, of.scope, of.key)
    if use is None:
        return None
    if use.request_hash != of.request_hash:
        raise Problem(
            "idempotency_key_reused", "This key made another job, from another body. Take a new key for a new job."
        )
    return await see_job(gateway, of.tenant_id, use.job_id)


async def see_job(gateway: Gateway, tenant_id: UUID, job_id: JobId) -> Job:
    """A job that was committed, as it is now."""
    job = await get_job(gateway.database, Reach(tenant_id), job_id)
    assert job is not None, "it was committed"
    return job
