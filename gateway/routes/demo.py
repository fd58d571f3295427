"""The demo: the page, the project's documents, and a user for each browser; only on a loopback host."""

import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.auth import COOKIE, check_same_site
from gateway.cookies import cookie_of
from gateway.gateway import Gateway, gateway_of
from gateway.negotiation import json_answer
from gateway.problems import Problem
from gateway.settings import is_loopback
from gateway.tokens import Claims, TokenInvalid
from gateway.tokens import Scope as TokenScope
from gateway.web_files import WebFiles

TENANT = "demo"
USER_COOKIE = "outlive_demo_user"
# As long as browsers keep a cookie at most, so that one finds its jobs again after a holiday.
USER_LIFETIME = timedelta(days=400)
SESSION_LIFETIME = timedelta(hours=24)
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class LoopbackOnly:
    """Answers only under a name of this machine: a foreign name that was pointed here would share our origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else "localhost"
        if is_loopback(_hostname(host)):
            await self._app(scope, receive, send)
        else:
            problem = Problem("forbidden", "The demo answers only under a name of this machine, such as localhost.")
            await problem.response()(scope, receive, send)


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def demo_routes() -> list[Route]:
    """Raises SettingInvalid where the page is not there."""
    pages = _Pages(WebFiles())
    return [
        Route("/demo/session", _session, methods=["POST"]),
        Route("/demo/documents", pages.documents, methods=["GET"]),
        Route("/demo/documents/{name}", pages.document, methods=["GET"]),
        Route("/", pages.index, methods=["GET"]),
        Route("/{name}", pages.file, methods=["GET"]),
    ]


async def _session(request: Request) -> Response:
    """A user for this browser: the one it had, or a new one."""
    gateway = gateway_of(request)
    gateway.check_started()
    check_same_site(request)
    await gateway.tenants.made(TENANT)
    user = _known_user(gateway, request) or f"browser-{secrets.token_hex(12)}"
    now = datetime.now(UTC)
    claims = Claims(TENANT, user, None, frozenset(TokenScope), now + SESSION_LIFETIME)
    remembered = {"demo_user": user, "exp": int((now + USER_LIFETIME).timestamp())}
    response = json_answer({"user_id": user}, headers={"Cache-Control": "no-store"})
    _set_cookie(response, COOKIE, gateway.signer.sign(claims), SESSION_LIFETIME)
    _set_cookie(response, USER_COOKIE, gateway.signer.sign_payload(remembered), USER_LIFETIME)
    return response


def _known_user(gateway: Gateway, request: Request) -> str | None:
    try:
        user = gateway.signer.verify_payload(cookie_of(request, USER_COOKIE) or "").get("demo_user")
    except TokenInvalid:
        return None
    return user if isinstance(user, str) else None


def _set_cookie(response: Response, name: str, value: str, lifetime: timedelta) -> None:
    """Not Secure: the demo is plain HTTP on loopback."""
    response.set_cookie(
        name, value, max_age=int(lifetime.total_seconds()), path="/", httponly=True, samesite="strict"
    )


class _Pages:
    """What is read from disk, in a thread each time."""

    def __init__(self, files: WebFiles) -> None:
        self._files = files

    async def index(self, request: Request) -> Response:
        return await self._file(request, "index.html")

    async def file(self, request: Request) -> Response:
        return await self._file(request, request.path_params["name"])

    async def documents(self, _request: Request) -> Response:
        found = await run_sync(self._files.documents)
        listed = [{"name": each.name, "title": each.title, "characters": len(each.text)} for each in found]
        return json_answer(listed, headers=SECURITY_HEADERS)

    async def document(self, request: Request) -> Response:
        found = await run_sync(self._files.document, request.path_params["name"])
        if found is None:
            raise Problem("not_found", "There is no such document; GET /demo/documents lists them.")
        return Response(found.text, headers=SECURITY_HEADERS, media_type="text/plain; charset=utf-8")

    async def _file(self, request: Request, name: str) -> Response:
        found = await run_sync(self._files.page_file, name)
        if found is None:
            raise Problem("not_found", "There is nothing at this address.")
        headers = {**SECURITY_HEADERS, "ETag": found.etag}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)
