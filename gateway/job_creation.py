"""Recording a job, once for each idempotency key, whatever races.

    replay?  ->  form  ->  kind, input  ->  insert  ->  lost the race? replay

The replay is looked for before anything is judged: what was accepted once stays accepted, whatever has become of the
kind, the limits or the clock since.
"""

from dataclasses import dataclass
from typing import Any

from gateway.auth import Caller
from gateway.bodies import beside_the_loop
from gateway.findings import finding, invalid
from gateway.gateway import Gateway
from gateway.job_request import JobRequest, check_form, read_request
from gateway.problems import Problem
from gateway.strict_json import digest
from schema.job_ids import JobId, new_job_id
from schema.jobs import Job, NewJob, Reach, create_job, find_by_key, get_job


@dataclass(frozen=True, slots=True)
class Asked:
    """What came in: by whom, under which key, and the body with its size in bytes."""

    caller: Caller
    key: str
    body: Any
    size_bytes: int
    traceparent: str | None

    @property
    def scope(self) -> str:
        """A token's keys belong to its user, an API key's to the tenant."""
        return self.caller.user or ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The job as it is now, and whether an earlier request had made it."""

    job: Job
    replayed: bool


async def record_job(gateway: Gateway, asked: Asked) -> Recorded:
    """The job that this request makes or made; when it returns, the job is committed.

    Raises Problem idempotency_key_reused, invalid_input, unknown_kind, unknown_provider.
    """
    request_hash = await beside_the_loop(asked.size_bytes, digest, asked.body)
    earlier = await _replay(gateway, asked, request_hash)
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    new = _new_job(asked, await _checked(gateway, asked), request_hash)
    if await create_job(gateway.database, new):
        gateway.hints.work()
        return Recorded(await _seen(gateway, asked, new.id), replayed=False)
    earlier = await _replay(gateway, asked, request_hash)
    assert earlier is not None, "a key that is taken stays taken"
    return Recorded(earlier, replayed=True)


async def _replay(gateway: Gateway, asked: Asked, request_hash: bytes) -> Job | None:
    use = await find_by_key(gateway.database, asked.caller.tenant.id, asked.scope, asked.key)
    if use is None:
        return None
    if use.request_hash != request_hash:
        raise Problem(
            "idempotency_key_reused", "This key made another job, from another body. Take a new key for a new job."
        )
    return await _seen(gateway, asked, use.job_id)


async def _seen(gateway: Gateway, asked: Asked, job_id: JobId) -> Job:
    job = await get_job(gateway.database, Reach(asked.caller.tenant.id), job_id)
    assert job is not None, "it was committed"
    return job


async def _checked(gateway: Gateway, asked: Asked) -> JobRequest:
    body = asked.body
    await beside_the_loop(asked.size_bytes, check_form, body)
    known = await gateway.kinds.find(body["kind"])
    if known is None:
        raise Problem("unknown_kind", "No worker has registered this kind; GET /api/ai/kinds lists those that have.")
    request = await beside_the_loop(asked.size_bytes, read_request, body, known)
    if asked.caller.user is not None and request.user_id not in {None, asked.caller.user}:
        raise invalid([finding(["user_id"], "must be the token's user, or be left out")])
    return request


def _new_job(asked: Asked, request: JobRequest, request_hash: bytes) -> NewJob:
    return NewJob(
        id=new_job_id(),
        tenant_id=asked.caller.tenant.id,
        user_id=asked.caller.user or request.user_id,
        idempotency_scope=asked.scope,
        idempotency_key=asked.key,
        request_hash=request_hash,
        kind=request.kind,
        provider=request.provider,
        model=request.model,
        priority=request.priority,
        max_attempts=request.max_attempts,
        on_unknown=request.on_unknown,
        run_at=request.run_at,
        start_before=request.start_before,
        traceparent=asked.traceparent,
        input_json=request.input_json,
        metadata_json=request.metadata_json,
    )
