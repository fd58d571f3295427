"""`POST /api/ai/jobs/{job_id}/retry`: a failed or cancelled job once more, as a new one."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import authenticate
from gateway.gateway import gateway_of
from gateway.job_retry import record_retry
from gateway.negotiation import check_accepts_json
from gateway.queries import read_query
from gateway.routes.recording import answer_recorded, check_may_create, idempotency_key, not_found, traceparent
from schema.job_ids import parse_job_id
from schema.jobs import get_job


def retry_routes() -> list[Route]:
    """One address."""
    return [Route("/api/ai/jobs/{job_id}/retry", _retry, methods=["POST"])]


async def _retry(request: Request) -> Response:
    gateway = gateway_of(request)
    job_id = parse_job_id(request.path_params["job_id"])
    caller = await authenticate(request)
    check_accepts_json(request)
    read_query(request, ())
    old = None if job_id is None else await get_job(gateway.database, caller.reach, job_id)
    if old is None:
        raise not_found()
    check_may_create(caller)
    key = idempotency_key(request)
    recorded = await record_retry(gateway, caller, old, key, traceparent(request))
    return await answer_recorded(request, caller, recorded)
