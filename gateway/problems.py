"""Errors as callers see them: RFC 9457, with a `code` of docs/protocol.md 3 that a program can branch on."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from schema.errors import DatabaseBusy, DatabaseUnavailable

CONTENT_TYPE = "application/problem+json"
# Spread, because callers that all wait the same time come back together.
RETRY_LEAST_SECONDS = 1
RETRY_SPREAD_SECONDS = 5

STATUS: Mapping[str, int] = {
    "bad_request": 400,
    "bad_json": 400,
    "invalid_query": 400,
    "idempotency_key_missing": 400,
    "bad_cursor": 400,
    "unauthorized": 401,
    "quota_exceeded": 402,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "idempotency_key_reused": 409,
    "already_finished": 409,
    "not_finished": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid_input": 422,
    "unknown_kind": 422,
    "unknown_provider": 422,
    "cost_limit_required": 422,
    "queue_full": 429,
    "internal": 500,
    "database_unavailable": 503,
    "draining": 503,
}
_BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}
_DETAILS = {
    "not_found": "There is nothing at this address, or nothing that you may see.",
    "method_not_allowed": "This address does not take this method; the Allow header lists those that it takes.",
}


class Problem(Exception):
    """An answer that is an error. `detail` tells the caller what to do; `members` stand beside it in the body."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None, **members: object) -> None:
        super().__init__(code)
        self.code = code
        self.status = STATUS[code]
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members
        if self.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
            self.headers.setdefault("Retry-After", retry_after())
        if self.status == HTTPStatus.UNAUTHORIZED:
            self.headers.setdefault("WWW-Authenticate", "Bearer")

    def __reduce__(self) -> tuple[object, ...]:
        """Large bodies are judged in another process, and what is wrong with them comes back from there."""
        return _remade, (self.code, self.detail, self.headers, self.members)

    def response(self) -> Response:
        """The whole answer."""
        return Response(orjson.dumps(self.document()), self.status, self.headers, CONTENT_TYPE)

    def document(self) -> dict[str, object]:
        """The body, as RFC 9457 names its members."""
        return {
            "type": f"urn:outlive:problem:{self.code}",
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            **self.members,
        }


def _remade(code: str, detail: str, headers: dict[str, str], members: dict[str, object]) -> Problem:
    return Problem(code, detail, headers, **members)


def retry_after() -> str:
    """A jittered number of seconds for Retry-After."""
    return str(RETRY_LEAST_SECONDS + secrets.randbelow(RETRY_SPREAD_SECONDS))


def database_problem() -> Problem:
    """PostgreSQL is not there: nothing is known to be wrong with the request."""
    return Problem("database_unavailable", "The database does not answer now. Send the same request again later.")


def internal_problem() -> Problem:
    """A fault of ours; the log names the place, the caller learns nothing of it."""
    return Problem("internal", "This is a fault of the gateway. Its log names the place; try again later.")


async def _problem(_request: Request, error: Any) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _http_error(_request: Request, error: Any) -> Response:
    """What the router itself refuses: an unknown path, a method that the path does not take."""
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code, "bad_request")
    detail = _DETAILS.get(code, "The request is not one that this address takes.")
    return Problem(code, detail, error.headers).response()


async def _database_away(_request: Request, _error: Exception) -> Response:
    return database_problem().response()


HANDLERS: Mapping[Any, Any] = {
    Problem: _problem,
    HTTPException: _http_error,
    DatabaseUnavailable: _database_away,
    DatabaseBusy: _database_away,
}
