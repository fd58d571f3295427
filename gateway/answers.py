"""What holds for every answer: headers that are always there, and an error for whatever nobody expected."""

import traceback
from pathlib import Path

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import internal_problem

MOST_CALLS = 8
_ROOT = f"{Path(__file__).resolve().parent.parent}/"
_OURS = (f"{_ROOT}gateway/", f"{_ROOT}schema/")

log = structlog.get_logger()


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

        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  the edge of the process: what is behind it must go on
            log_fault("request failed", error)
            # Once an answer has begun, to return without its end is what makes the server cut the connection.
            if not started:
                await internal_problem().response()(scope, receive, answer)


def log_fault(event: str, error: BaseException) -> None:
    """Log where an error came from and what it is called; its text may hold what a user wrote."""
    log.error(event, error=type(error).__qualname__, calls=_calls(error))
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            log_fault(event, each)


def _calls(error: BaseException) -> list[str]:
    """Where it was raised, then our own calls that led there, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    shown = [*frames[:1], *(frame for frame in ours if frame is not frames[0])]
    return [f"{frame.filename.removeprefix(_ROOT)}:{frame.lineno} {frame.name}" for frame in shown[:MOST_CALLS]]
