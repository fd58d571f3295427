"""/api/ai/kinds: what can be asked for."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import authenticate
from gateway.gateway import gateway_of
from gateway.job_view import usd
from gateway.negotiation import check_accepts_json, json_answer
from gateway.queries import read_query
from schema.kinds import JobKind


def kind_routes() -> list[Route]:
    """One address."""
    return [Route("/api/ai/kinds", _list, methods=["GET"])]


async def _list(request: Request) -> Response:
    gateway = gateway_of(request)
    await authenticate(request)
    check_accepts_json(request)
    read_query(request, set())
    await gateway.kinds.refresh()
    return json_answer({"kinds": [_view(kind) for kind in gateway.kinds]})


def _view(kind: JobKind) -> dict[str, Any]:
    """Money in US dollars; the prices are a million tokens', under the provider and the model, as far as known."""
    return {
        "kind": kind.kind,
        "version": kind.version,
        # A kind that calls a provider cannot run where no worker has one; it is listed, so that one learns of it.
        "available": kind.default_provider is not None or not kind.calls_provider,
        "input_schema": kind.input_schema,
        "repeat": kind.repeat,
        "time_limit_seconds": kind.time_limit_s,
        "defaults": {"provider": kind.default_provider, "model": kind.default_model, "max_attempts": 3},
        "providers": {name: list(models) for name, models in kind.choices.items()},
        "price_usd": None if kind.price_usd is None else usd(kind.price_usd),
        "max_cost_usd": None if kind.max_cost_usd is None else usd(kind.max_cost_usd),
        "prices": kind.prices,
    }
