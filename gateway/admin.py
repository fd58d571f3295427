"""The admin port: /metrics, /livez and /readyz, for the platform and for nobody else.

A server of its own, so that it can be kept off the network that callers come from, and answers while the other one
drains. It needs no credential and tells nothing of anybody.
"""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.answers import Answers
from gateway.gateway import Gateway
from gateway.metrics import Metrics
from gateway.problems import HANDLERS
from gateway.routes.operations import operation_routes


def create_admin_app(gateway: Gateway) -> Starlette:
    """The ASGI application of the admin port."""
    app = Starlette(
        routes=[Route("/metrics", _metrics, methods=["GET"]), *operation_routes()],
        middleware=[Middleware(Answers)],
        exception_handlers=dict(HANDLERS),
    )
    app.router.redirect_slashes = False
    app.state.gateway = gateway
    app.state.metrics = Metrics(gateway)
    return app


async def _metrics(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    text, content_type = await metrics.page(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
