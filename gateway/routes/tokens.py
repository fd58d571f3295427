"""/api/ai/tokens: a back end gets tokens for its users' browsers."""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import authenticate
from gateway.bodies import beside_the_loop, read_body
from gateway.findings import check, finding, invalid
from gateway.gateway import gateway_of
from gateway.job_view import rfc3339
from gateway.kind_book import compiled
from gateway.negotiation import check_accepts_json, json_answer
from gateway.strict_json import parse
from gateway.tokens import LONGEST, USER_CHARACTERS, Claims, Scope
from schema.job_ids import parse_job_id

DEFAULT_SECONDS = 3600
MOST_JOBS = 100  # some 4 KiB of token; a query or a header of twice that is refused by much of what lies between

_FORM = compiled(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "user": {"type": ["string", "null"], "minLength": 1, "maxLength": USER_CHARACTERS},
            "jobs": {
                "anyOf": [
                    {"const": "*"},
                    {
                        "type": "array",
                        "items": {"type": "string", "maxLength": 36},
                        "minItems": 1,
                        "maxItems": MOST_JOBS,
                    },
                ]
            },
            "scope": {"type": "array", "items": {"enum": list(Scope)}, "minItems": 1},
            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": LONGEST // timedelta(seconds=1)},
        },
        "additionalProperties": False,
    }
)


def token_routes() -> list[Route]:
    """One address."""
    return [Route("/api/ai/tokens", _mint, methods=["POST"])]


async def _mint(request: Request) -> Response:
    gateway = gateway_of(request)
    caller = await authenticate(request)
    check_accepts_json(request)
    caller.must_be_backend()
    wish = await beside_the_loop(_wish, await read_body(request))
    claims = _claims(caller.tenant.name, wish)
    return json_answer({"token": gateway.signer.sign(claims), "expires_at": rfc3339(claims.expires_at)}, 201)


def _wish(body: bytes) -> dict[str, Any]:
    value: dict[str, Any] = parse(body)
    check(_FORM, value)
    return value


def _claims(tenant: str, body: dict[str, Any]) -> Claims:
    jobs = body.get("jobs")
    if jobs is None and body.get("user") is None:
        raise invalid([finding(["jobs"], "is needed where no user is named: a list of ids, or '*' for all")])
    ids = [parse_job_id(job) for job in jobs] if isinstance(jobs, list) else []
    if None in ids:
        raise invalid([finding(["jobs"], "has to be '*' or a list of ids of jobs, as the gateway gave them")])
    lifetime = timedelta(seconds=body.get("ttl_seconds", DEFAULT_SECONDS))
    return Claims(
        tenant=tenant,
        user=body.get("user"),
        jobs=frozenset(job_id for job_id in ids if job_id is not None) if ids else None,
        scopes=frozenset(Scope(name) for name in body.get("scope", [Scope.READ])),
        # Whole seconds, as the token carries them.
        expires_at=(datetime.now(UTC) + lifetime).replace(microsecond=0),
    )
