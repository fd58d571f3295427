"""/livez and /readyz, for whoever runs the process, on both of its ports."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.gateway import gateway_of
from gateway.negotiation import json_answer
from gateway.problems import Problem


def operation_routes() -> list[Route]:
    """No credential is needed: they tell nothing of anybody."""
    return [Route("/livez", _alive, methods=["GET"]), Route("/readyz", _ready, methods=["GET"])]


async def _alive(_request: Request) -> Response:
    return json_answer({"alive": True}, headers={"Cache-Control": "no-store"})


async def _ready(request: Request) -> Response:
    """Ready once started, until it drains or the tables leave the range: a database that is away for a while takes
    every gateway along, and to take them all out of service would help nobody."""
    gateway = gateway_of(request)
    readiness = gateway.readiness
    facts = {
        "database": "up" if readiness.database_up else "down",
        "listen": "up" if readiness.listen_up else "down",
    }
    no_store = {"Cache-Control": "no-store"}
    if gateway.draining.is_set():
        raise Problem("draining", "The gateway is about to end.", no_store, ready=False, **facts)
    if not readiness.started or readiness.out_of_range:
        detail = f"The gateway {readiness.trouble}."
        raise Problem("database_unavailable", detail, no_store, ready=False, **facts)
    return json_answer({"ready": True, **facts}, headers=no_store)
