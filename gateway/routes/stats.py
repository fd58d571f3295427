"""`GET /api/ai/stats`: what happened in a window of time, of a tenant or of all."""

import re
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import authenticate
from gateway.client_watch import while_client_stays
from gateway.gateway import Gateway, gateway_of
from gateway.job_view import rfc3339, usd
from gateway.negotiation import check_accepts_json, json_answer
from gateway.problems import Problem
from gateway.queries import invalid_query, read_query
from schema.database import Database
from schema.jobs import Reach
from schema.stats import CountingTooLong, ModelStats, Stats, WindowStats, window_stats

USUAL_WINDOW = "24h"
_WINDOW = re.compile(r"([0-9]{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SHORTEST = timedelta(minutes=1)
# Rows are kept for 400 days; docs/protocol.md 10.
LONGEST = timedelta(days=400)
# Each may take 10 s; who would wait for longer than a minute and a half is told so at once.
WAITING_MOST = 8
TOO_LONG = "There is too much to count in this window. Ask for a shorter one."


class StatsRoute:
    """One count at a time in this process: however many ask, jobs keep the pool's other connections."""

    def __init__(self) -> None:
        self._counting = anyio.Lock()

    async def answer(self, request: Request) -> Response:
        """The statistics of an API key's tenant; with an operator's key, of all and of each."""
        gateway = gateway_of(request)
        caller = await authenticate(request)
        check_accepts_json(request)
        caller.must_be_backend()
        text = read_query(request, {"window"}).get("window", USUAL_WINDOW)
        window = _window(text)
        found = await self._count_for(request, window, caller.reach)
        view = {"window": text, "since": rfc3339(found.since), **_view(found.together)}
        if caller.reach.tenant_id is None:
            view["by_tenant"] = await _by_tenant(gateway, found)
        return json_answer(view)

    async def _count_for(self, request: Request, window: timedelta, reach: Reach) -> WindowStats:
        if self._counting.statistics().tasks_waiting >= WAITING_MOST:
            raise Problem("database_unavailable", "Many ask for statistics just now. Ask again later.")
        work = partial(self._count, gateway_of(request).database, window, reach)
        try:
            # Who has left would be counted for all the same, and those behind him would wait.
            found = await while_client_stays(request.receive, work)
        except CountingTooLong:
            raise Problem("database_unavailable", TOO_LONG) from None
        if found is None:
            raise ClientDisconnect
        return found

    async def _count(self, database: Database, window: timedelta, reach: Reach) -> WindowStats:
        async with self._counting:
            return await window_stats(database, window, reach.tenant_id)


def stats_routes() -> list[Route]:
    """One address."""
    return [Route("/api/ai/stats", StatsRoute().answer, methods=["GET"])]


def _window(text: str) -> timedelta:
    found = _WINDOW.fullmatch(text)
    window = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not SHORTEST <= window <= LONGEST:
        raise invalid_query("window is a number and m, h or d, such as 90m, 24h or 7d, from 1m to 400d")
    return window


async def _by_tenant(gateway: Gateway, found: WindowStats) -> list[dict[str, Any]]:
    """In the order of the tenants' names."""
    named = [((await gateway.tenants.of_id(of)).name, stats) for of, stats in found.by_tenant.items()]
    return [{"tenant": name, **_view(stats)} for name, stats in sorted(named, key=lambda each: each[0])]


def _view(stats: Stats) -> dict[str, Any]:
    return {
        "jobs_created": stats.jobs_created,
        "jobs_accepted": stats.jobs_accepted,
        "share_without_retry": stats.share_without_retry,
        "job_retry_rate": stats.job_retry_rate,
        "lease_expired_count": stats.leases_expired,
        "provider_attempts": stats.provider_attempts,
        "provider_unknown_outcomes": stats.provider_unknown_outcomes,
        "cost_per_accepted_job": [_model_view(model) for model in stats.models],
        "queue_wait_s": asdict(stats.queue_wait_s),
        "run_time_s": asdict(stats.run_time_s),
    }


def _model_view(model: ModelStats) -> dict[str, Any]:
    """What is not known is null and never 0."""
    return {
        "provider": model.provider,
        "model": model.model,
        "cost_usd": _usd(model.cost_usd),
        "accepted_jobs": model.accepted_jobs,
        "cost_per_accepted_job": _usd(model.cost_per_accepted_job),
        "provider_attempts": model.calls,
        "provider_unknown_outcomes": model.unknown_outcomes,
        "calls_with_unknown_cost": model.calls_with_unknown_cost,
    }


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else usd(amount)
