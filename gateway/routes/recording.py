"""What the requests that make a job have in common: their headers, who may, and the answer."""

import re

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth import Caller
from gateway.gateway import gateway_of
from gateway.inline_wait import wait_inline
from gateway.job_creation import Recorded
from gateway.job_view import view_job
from gateway.negotiation import json_answer
from gateway.preferences import preferred_wait
from gateway.problems import Problem
from gateway.tokens import Scope

_KEY = re.compile(r"[\x20-\x7e]{1,255}")
# W3C Trace Context, version 00; what is not of this form is not a trace and is left out.
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def check_may_create(caller: Caller) -> None:
    """Raise Problem forbidden where the token may make no jobs, or only certain ones exist for it."""
    caller.must(Scope.CREATE)
    if caller.reach.jobs is not None:
        raise Problem("forbidden", "A token for certain jobs cannot make others; it takes one with jobs '*'.")


def idempotency_key(request: Request) -> str:
    """The key of the request. Raises Problem idempotency_key_missing."""
    keys = request.headers.getlist("idempotency-key")
    if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        raise Problem(
            "idempotency_key_missing",
            "Send one Idempotency-Key of 1 to 255 printable ASCII characters, the same each time you repeat this.",
        )
    return keys[0]


def traceparent(request: Request) -> str | None:
    """The trace that the request belongs to, if it says so."""
    value = request.headers.get("traceparent", "")
    return value if _TRACEPARENT.fullmatch(value) else None


def not_found() -> Problem:
    """What is not there and what one may not see look the same."""
    return Problem("not_found", "There is no such job, or none that you may see.")


async def answer_recorded(request: Request, caller: Caller, recorded: Recorded) -> Response:
    """The job: 202, 200 for a replay; and 200 where the request waits for the end and it came in time."""
    gateway = gateway_of(request)
    job = recorded.job
    headers = {"Location": gateway.link(f"/api/ai/jobs/{job.id}")}
    if recorded.replayed:
        headers["Idempotent-Replayed"] = "true"
    wait_s = preferred_wait(request.headers)
    if wait_s is not None:
        headers["Preference-Applied"] = f"wait={wait_s}"
        job = await wait_inline(request, gateway, recorded, wait_s)
    is_done = recorded.replayed or (wait_s is not None and job.status.ended)
    return json_answer(await view_job(gateway, caller, job), 200 if is_done else 202, headers)
