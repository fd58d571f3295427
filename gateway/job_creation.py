"""Recording a job, once for each idempotency key, whatever races.

    is it JSON?  ->  replay?  ->  form, kind, input  ->  insert  ->  lost the race? replay

The replay is looked for before any fault of the request counts: what was accepted once stays accepted, whatever has
become of the kind, the limits or the clock since.
"""

from dataclasses import dataclass
from functools import partial

from gateway.admission import record_once
from gateway.auth import Caller
from gateway.bodies import beside_the_loop
from gateway.findings import finding, invalid
from gateway.gateway import Gateway
from gateway.job_body import Judgement, judge
from gateway.job_replay import KeyOf, find_replay, see_job
from gateway.job_request import JobRequest
from gateway.problems import Problem
from schema.creation import NewJob, create_job
from schema.job_ids import new_job_id
from schema.jobs import Job


@dataclass(frozen=True, slots=True)
class Asked:
    """What came in: by whom, under which key, and the body as it came; `waits`: for the end, as far as it can."""

    caller: Caller
    key: str
    body: bytes
    traceparent: str | None
    waits: bool = False

    @property
    def scope(self) -> str:
        """A token's keys belong to its user, an API key's to the tenant."""
        return self.caller.user or ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The job as it is now, and whether an earlier request had made it.

    `ends_with_client`: this very request made it, and asked to cancel it when its client leaves.
    """

    job: Job
    replayed: bool
    ends_with_client: bool = False


async def record_job(gateway: Gateway, asked: Asked) -> Recorded:
    """The job that this request makes or made; when it returns, the job is committed.

    Raises Problem bad_json, idempotency_key_reused, invalid_input, unknown_kind, unknown_provider, queue_full,
    quota_exceeded, cost_limit_required.
    """
    judgement = await beside_the_loop(judge, asked.body, gateway.kinds.by_name)
    use = KeyOf(asked.caller.tenant.id, asked.scope, asked.key, judgement.request_hash)
    earlier = await find_replay(gateway, use)
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    request = await _accepted(gateway, asked, judgement)
    new = _new_job(asked, request, judgement.request_hash)
    earlier = await record_once(gateway, use, partial(create_job, gateway.database, new))
    if earlier is not None:
        return Recorded(earlier, replayed=True)
    return Recorded(await see_job(gateway, use.tenant_id, new.id), False, request.ends_with_client)


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
    if request.ends_with_client and not asked.waits:
        raise invalid([finding(["on_disconnect"], "'cancel' needs the header Prefer: wait=N")])
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
        money=request.money,
    )
