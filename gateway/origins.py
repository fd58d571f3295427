"""Pages from elsewhere: which may read answers (CORS), and what a browser sent on a foreign page's behalf."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.problems import Problem

# What a caller of ours sends and a browser asks about first; with what traces and waits need.
ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Cache-Control, Prefer, traceparent"
ALLOWED_METHODS = "GET, HEAD, POST, DELETE"
EXPOSED_HEADERS = "Location, Retry-After, Idempotent-Replayed, Preference-Applied"
PREFLIGHT_SECONDS = 600
_REFUSED = Problem("forbidden", "Pages of this origin may not call; list it in OUTLIVE_ORIGINS.")


class Cors:
    """Tells the browser that the named origins may read every answer, errors too; pure ASGI."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._origins:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._mark(MutableHeaders(scope=message), origin)
            await send(message)

        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            preflight = _preflight() if origin in self._origins else _REFUSED.response()
            await preflight(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)

    def _mark(self, headers: MutableHeaders, origin: str) -> None:
        headers.add_vary_header("Origin")
        if origin in self._origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Credentials"] = "true"
            headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS


def _preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        },
    )


def is_cross_site(headers: Headers, origins: frozenset[str], public_url: str) -> bool:
    """Whether a browser sent this for a page that is neither ours nor one of `origins`.

    The scheme is not compared where no public URL is set: a proxy that ends TLS makes https of our http.
    """
    origin = headers.get("origin")
    if origin in origins:
        return False
    if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return True
    if origin is None:
        return False
    own = {headers.get("host"), urlsplit(public_url).netloc or None}
    # "null", which a sandboxed frame sends, has no host at all.
    return (urlsplit(origin).netloc or "null") not in own
