"""A job as callers see it: docs/protocol.md 3."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.auth import Caller
from gateway.gateway import Gateway
from gateway.tokens import Claims, Scope
from schema.calls import JobCost, job_costs
from schema.jobs import Job, JobError

EVENTS_TOKEN = timedelta(seconds=3600)


async def view_jobs(gateway: Gateway, caller: Caller, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Each as one JSON object; what calls cost is for back ends only."""
    costs = await job_costs(gateway.database, [job.id for job in jobs]) if caller.key and jobs else {}
    return [
        {
            **_facts(job),
            "cost": _cost(job, costs[job.id]) if caller.key else None,
            "events_url": await _events_url(gateway, caller, job),
        }
        for job in jobs
    ]


async def view_job(gateway: Gateway, caller: Caller, job: Job) -> dict[str, Any]:
    """One of them."""
    (view,) = await view_jobs(gateway, caller, [job])
    return view


def rfc3339(moment: datetime | None) -> str | None:
    """In UTC, to the millisecond, with a Z."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def usd(amount: Decimal) -> str:
    """Dollars without an exponent and without needless zeros."""
    return f"{amount.normalize():f}"


def _facts(job: Job) -> dict[str, Any]:
    return {
        "job_id": str(job.id),
        "kind": job.kind,
        "status": job.status,
        "user_id": job.user_id,
        "metadata": job.metadata,
        "priority": job.priority,
        "provider": job.provider,
        "model": job.model,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "cancel_requested": job.cancel_requested,
        "retry_of": None if job.retry_of is None else str(job.retry_of),
        "created_at": rfc3339(job.created_at),
        "run_at": rfc3339(job.run_at),
        "started_at": rfc3339(job.started_at),
        "finished_at": rfc3339(job.finished_at),
        "waiting_for": job.waiting_for,
        "last_event_id": job.last_event_id,
        "result": job.result,
        "error": view_error(job.error),
    }


def view_error(error: JobError | None) -> dict[str, str] | None:
    """Why a job failed, as callers see it."""
    if error is None:
        return None
    return {"code": error.code, "class": error.error_class, "message": error.message}


def _cost(job: Job, cost: JobCost) -> dict[str, Any]:
    """What is not known is null and never 0."""
    return {
        "reserved_usd": _shown(job.reserved_usd),
        "charged_usd": _shown(job.charged_usd),
        "provider_usd": _shown(cost.known_usd),
        "complete": cost.complete,
    }


def _shown(amount: Decimal | None) -> str | None:
    return None if amount is None else usd(amount)


async def _events_url(gateway: Gateway, caller: Caller, job: Job) -> str:
    """With a token to read this job for an hour, and never more or longer than the caller may."""
    url = gateway.link(f"/api/ai/jobs/{job.id}/events")
    if Scope.READ not in caller.scopes:
        return url
    until = datetime.now(UTC) + EVENTS_TOKEN
    claims = Claims(
        tenant=(await gateway.tenants.of_id(job.tenant_id)).name,
        user=caller.user,
        jobs=frozenset({job.id}),
        scopes=frozenset({Scope.READ}),
        expires_at=until if caller.expires_at is None else min(until, caller.expires_at),
    )
    return f"{url}?token={gateway.signer.sign(claims)}"
