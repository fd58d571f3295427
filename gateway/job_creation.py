"""Recording a job, once for each idempotency key, whatever races.

    is it JSON?  ->  replay?  ->  form, kind, input  ->  insert  ->  lost the race? replay

The replay is looked for before any fault of the request counts: what was accepted once stays accepted, whatever has
become of the kind, the limits or the clock since.
"""

from dataclasses import dataclass

from gateway.auth import Caller
from gateway.bodies import beside_the_loop
from gateway.findings import finding, invalid
from gateway.gateway import Gateway
from gateway.job_body import Judgement, judge
from gateway.job_request import JobRequest
from gateway.problems import Problem
from schema.job_ids import JobId, new_job_id
from schema.jobs import Job, NewJob, Reach, create_job, find_by_key, get_job


@dataclass(frozen=True, slots=True)
class Asked:
    """What came in: by whom, under which key, and the body as it came."""

    caller: Caller
    key: str
    body: bytes
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

    Raises Problem bad_json, idempotency_key_reused, invalid_input, unknown_kind, unknown_provider.
    """
    judgement = await beside_the_loop(judge, asked.body, gateway.kinds.by_name)
    earlier = await _replay(gateway, asked, judgement.request_hash)
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    new = _new_job(asked, await _accepted(gateway, asked, judgement), judgement.request_hash)
    if await create_job(gateway.database, new):
        gateway.hints.work()
        return Recorded(await _seen(gateway, asked, new.id), replayed=False)
    earlier = await _replay(gateway, asked, judgement.request_hash)
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


async def _accepted(gateway: Gateway, asked: Asked, judgement: Judgement) -> JobRequest:
    if judgement.unknown_kind is not None:
        kind = await gateway.kinds.find(judgement.unknown_kind)
        if kind is None:
            raise Problem(
                "unknown_kind", "No worker has registered this kind; GET /api/ai/kinds lists what there is."
            )
        judgement = await beside_the_loop(judge, asked.body, {kind.kind: kind})
    if judgement.problem is not None:
        raise judgement.problem
    request = judgement.request
    assert request is not None, "it is one of the three"
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
