"""What holds for every answer: headers that are always there, and an error for whatever nobody expected."""

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import Problem, internal_problem
from schema.faults import log_fault

_TWO_LENGTHS = Problem(
    "bad_request", "Content-Length and Transfer-Encoding exclude each other; send one.", {"Connection": "close"}
)


class Answers:
    """`no-store` under /api, `nosniff` everywhere, and 500 as a problem document; pure ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if scope["path"].startswith("/api"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if _has_two_lengths(scope):
            await _TWO_LENGTHS.response()(scope, receive, answer)
            return
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  the edge of the process: what is behind it must go on
            log_fault("request failed", error)
            # Once an answer has begun, to return without its end is what makes the server cut the connection.
            if not started:
                await internal_problem().response()(scope, receive, answer)


def _has_two_lengths(scope: Scope) -> bool:
    """RFC 9112, 6.1: a proxy before us may have believed the other one, and taken a second request for a body."""
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names
