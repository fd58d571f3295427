"""`GET /api/ai/outcomes`: how the jobs of a tenant ended, each of them once."""

import time
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import authenticate
from gateway.client_watch import while_client_stays
from gateway.gateway import Gateway, gateway_of
from gateway.job_view import rfc3339, view_error
from gateway.negotiation import check_accepts_json, json_answer
from gateway.outcome_cursors import decode_outcome_cursor, encode_outcome_cursor
from gateway.problems import Problem
from gateway.queries import read_query, whole_number
from schema.jobs import Reach
from schema.outcomes import FIRST, Outcome, OutcomeCursor, outcomes_after

USUALLY_GIVEN = 50
MOST_GIVEN = 200
WAIT_MOST_SECONDS = 50
# A hint could not replace this look: an outcome is shown once every older transaction has ended, which nobody
# announces. One indexed read each time for each back end that waits.
LOOK_SECONDS = 1.0


def outcome_routes() -> list[Route]:
    """One address."""
    return [Route("/api/ai/outcomes", _outcomes, methods=["GET"])]


async def _outcomes(request: Request) -> Response:
    gateway = gateway_of(request)
    caller = await authenticate(request)
    check_accepts_json(request)
    caller.must_be_backend()
    query = read_query(request, {"after", "limit", "wait"})
    after = _cursor(query.get("after"))
    limit = whole_number(query, "limit", USUALLY_GIVEN, 1, MOST_GIVEN)
    wait_s = whole_number(query, "wait", 0, 0, WAIT_MOST_SECONDS)
    found = await outcomes_after(gateway.database, caller.reach.tenant_id, after, limit)
    if not found and wait_s:
        waiting = partial(_wait, gateway, caller.reach, after, limit, wait_s)
        found = await while_client_stays(request.receive, waiting) or []
    following = found[-1].cursor if found else after
    return json_answer({"outcomes": list(map(_view, found)), "next": encode_outcome_cursor(following)})


def _cursor(text: str | None) -> OutcomeCursor:
    cursor = FIRST if text is None else decode_outcome_cursor(text)
    if cursor is None:
        raise Problem("bad_cursor", "The cursor is not one that outcomes gave as next; without one, they begin anew.")
    return cursor


async def _wait(gateway: Gateway, reach: Reach, after: OutcomeCursor, limit: int, wait_s: int) -> list[Outcome]:
    """The first outcomes; none where none came in time or the process is about to end."""
    with anyio.move_on_after(wait_s) as waiting, gateway.wheel.turning(waiting) as pulse:
        while not gateway.draining.is_set():
            pulse.look()
            if found := await outcomes_after(gateway.database, reach.tenant_id, after, limit):
                return found
            pulse.wakes_at = time.monotonic() + LOOK_SECONDS
            await pulse.wait()
    return []


def _view(outcome: Outcome) -> dict[str, Any]:
    """As the job object names these things."""
    return {
        "job_id": str(outcome.job_id),
        "status": outcome.status,
        "kind": outcome.kind,
        "user_id": outcome.user_id,
        "metadata": outcome.metadata,
        "retry_of": None if outcome.retry_of is None else str(outcome.retry_of),
        "created_at": rfc3339(outcome.created_at),
        "finished_at": rfc3339(outcome.finished_at),
        "error": view_error(outcome.error),
    }
