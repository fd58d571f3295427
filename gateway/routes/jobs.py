"""/api/ai/jobs: create, list, look, result."""

from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.attempt_view import view_attempts
from gateway.auth import Caller, authenticate
from gateway.bodies import read_body
from gateway.cancellation import ask_to_cancel
from gateway.gateway import gateway_of
from gateway.job_creation import Asked, record_job
from gateway.job_view import view_job, view_jobs
from gateway.negotiation import check_accepts_json, json_answer
from gateway.preferences import preferred_wait
from gateway.problems import Problem
from gateway.queries import invalid_query, read_query, whole_number
from gateway.routes.recording import answer_recorded, check_may_create, idempotency_key, not_found, traceparent
from gateway.tokens import Scope
from schema.calls import list_attempts
from schema.drafts import CancelBy
from schema.job_ids import JobId, parse_job_id
from schema.jobs import Job, JobStatus, get_job, list_jobs

MOST_LISTED = 200  # docs/protocol.md 3
USUALLY_LISTED = 50


def job_routes() -> list[Route]:
    """DELETE of a job will stand beside these."""
    return [
        # One route for both, so that a 405 lists both.
        Route("/api/ai/jobs", _jobs, methods=["GET", "POST"]),
        Route("/api/ai/jobs/{job_id}", _get, methods=["GET"]),
        Route("/api/ai/jobs/{job_id}/result", _result, methods=["GET"]),
        Route("/api/ai/jobs/{job_id}/cancel", _cancel, methods=["POST"]),
        Route("/api/ai/jobs/{job_id}/attempts", _attempts, methods=["GET"]),
    ]


async def _jobs(request: Request) -> Response:
    return await (_create if request.method == "POST" else _list)(request)


async def _create(request: Request) -> Response:
    gateway = gateway_of(request)
    caller = await authenticate(request)
    check_accepts_json(request)
    check_may_create(caller)
    key = idempotency_key(request)
    body = await read_body(request)
    waits = preferred_wait(request.headers) is not None
    recorded = await record_job(gateway, Asked(caller, key, body, traceparent(request), waits))
    return await answer_recorded(request, caller, recorded)


async def _list(request: Request) -> Response:
    gateway = gateway_of(request)
    caller = await authenticate(request)
    check_accepts_json(request)
    caller.must(Scope.READ)
    query = read_query(request, {"status", "kind", "user_id", "limit", "cursor"})
    limit = whole_number(query, "limit", USUALLY_LISTED, 1, MOST_LISTED)
    jobs = await list_jobs(
        gateway.database,
        caller.reach,
        user_id=query.get("user_id"),
        status=_status(query.get("status")),
        kind=query.get("kind"),
        before=_cursor(query.get("cursor")),
        limit=limit + 1,
    )
    views = await view_jobs(gateway, caller, jobs[:limit])
    for view in views:
        del view["result"]
    return json_answer({"jobs": views, "next": str(jobs[limit - 1].id) if len(jobs) > limit else None})


async def _get(request: Request) -> Response:
    caller, job = await _job(request)
    return json_answer(await view_job(gateway_of(request), caller, job))


async def _result(request: Request) -> Response:
    _, job = await _job(request)
    if not job.status.ended:
        raise Problem("not_finished", "The job has not ended yet; its events_url says when it does.")
    return json_answer(job.result)


async def _cancel(request: Request) -> Response:
    """202 means that the job ends cancelled, or has; 409 that it had ended otherwise."""
    gateway = gateway_of(request)
    job_id = parse_job_id(request.path_params["job_id"])
    caller = await authenticate(request)
    check_accepts_json(request)
    read_query(request, ())
    job = None if job_id is None else await get_job(gateway.database, caller.reach, job_id)
    if job is None:
        raise not_found()
    caller.must(Scope.CANCEL)
    cancel = await ask_to_cancel(gateway, caller.reach, job.id, CancelBy.USER)
    if cancel is None:
        raise not_found()
    if cancel.was in {JobStatus.SUCCEEDED, JobStatus.FAILED}:
        raise Problem("already_finished", f"The job has {cancel.was} already; there is nothing to cancel.")
    now = await get_job(gateway.database, caller.reach, job.id)
    return json_answer(await view_job(gateway, caller, now or job), 202)


async def _attempts(request: Request) -> Response:
    caller, job = await _job(request)
    caller.must_be_backend()
    return json_answer({"attempts": view_attempts(await list_attempts(gateway_of(request).database, job.id))})


async def _job(request: Request) -> tuple[Caller, Job]:
    """The job of the address, as far as the caller may see it; what he may not see is not there."""
    job_id: JobId | None = parse_job_id(request.path_params["job_id"])
    caller = await authenticate(request, query_token_for=job_id)
    check_accepts_json(request)
    read_query(request, {"token"})
    job = None if job_id is None else await get_job(gateway_of(request).database, caller.reach, job_id)
    if job is None:
        raise not_found()
    caller.must(Scope.READ)
    return caller, job


def _status(text: str | None) -> JobStatus | None:
    if text is not None and text not in set(JobStatus):
        raise invalid_query(f"status is one of {', '.join(JobStatus)}")
    return None if text is None else JobStatus(text)


def _cursor(text: str | None) -> UUID | None:
    cursor = None if text is None else parse_job_id(text)
    if text is not None and cursor is None:
        raise Problem("bad_cursor", "The cursor is not one that a list of jobs gave as next.")
    return cursor
