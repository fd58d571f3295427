"""`waiting_for` tells the truth: docs/protocol.md 3, each value with what is really so behind it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from schema.database import Database
from schema.kinds import forget_worker, see_worker
from schema.limits import remove_limit, set_limit
from schema.runs import Ask, claim
from tests.support.jobs import a_tenant, queued

pytestmark = pytest.mark.anyio

KIND = "write"
PROVIDER = "there"


async def waiting_for(database: Database, job_id: UUID) -> str | None:
    value: str | None = await database.fetchval("SELECT waiting_for FROM outlive.jobs_shown WHERE id = $1", job_id)
    return value


async def take(database: Database) -> int:
    """How many jobs a worker with the provider gets now."""
    return len((await claim(database, Ask("w", [KIND], [PROVIDER], 10, 60))).runs)


async def test_of_a_worker_with_its_kind_and_its_provider(database: Database) -> None:
    job_id = await queued(database, kind=KIND, provider=PROVIDER)
    assert await waiting_for(database, job_id) == "no_worker"
    for kinds, providers, reason in (
        (["other"], [PROVIDER], "no_worker"),
        ([KIND], ["elsewhere"], "no_worker"),
        ([KIND], [PROVIDER], None),
    ):
        await see_worker(database, "w", kinds, providers)
        assert await waiting_for(database, job_id) == reason
    seen = "UPDATE outlive.workers SET seen_at = now() - $1::interval"
    await database.execute(seen, timedelta(seconds=59))
    assert await waiting_for(database, job_id) is None
    await database.execute(seen, timedelta(seconds=61))
    assert await waiting_for(database, job_id) == "no_worker"
    await see_worker(database, "w", [KIND], [PROVIDER])
    await forget_worker(database, "w")
    assert await waiting_for(database, job_id) == "no_worker"


async def test_of_its_time_and_then_of_whoever_promotes_it(database: Database) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    job_id = await queued(database, kind=KIND, run_at=later)
    assert await waiting_for(database, job_id) == "run_at"
    await database.execute("UPDATE outlive.ai_jobs SET run_at = now() - interval '10 min' WHERE id = $1", job_id)
    assert await waiting_for(database, job_id) == "no_worker"
    await see_worker(database, "w", [KIND], [])
    assert await waiting_for(database, job_id) is None


@pytest.mark.parametrize("scope", ["global", "provider", "tenant"])
async def test_of_a_limit_that_real_runs_have_used_up(database: Database, scope: str) -> None:
    tenant_id = await a_tenant(database)
    name = await database.fetchval("SELECT name FROM outlive.tenants WHERE id = $1", tenant_id)
    await see_worker(database, "w", [KIND], [PROVIDER])
    limit = {"global": "global", "provider": f"provider:{PROVIDER}", "tenant": f"tenant:{name}"}[scope]
    # What it says of a tenant's limit names no tenant: its caller knows which one.
    reason = {"provider": limit}.get(scope, scope)
    await set_limit(database, limit, 1)
    jobs = [await queued(database, kind=KIND, provider=PROVIDER, tenant_id=tenant_id) for _ in range(2)]
    assert [await waiting_for(database, job_id) for job_id in jobs] == [None, None]
    assert await take(database) == 1
    assert [await waiting_for(database, job_id) for job_id in jobs] == [None, reason]
    await remove_limit(database, limit)
    assert await waiting_for(database, jobs[1]) is None
    await set_limit(database, limit, 0)
    assert await waiting_for(database, jobs[1]) == reason
    assert await take(database) == 0


async def test_another_tenant_s_limit_is_nobody_else_s(database: Database) -> None:
    tenant_id = await a_tenant(database)
    name = await database.fetchval("SELECT name FROM outlive.tenants WHERE id = $1", tenant_id)
    await see_worker(database, "w", [KIND], [PROVIDER])
    await set_limit(database, f"tenant:{name}", 0)
    mine = await queued(database, kind=KIND, tenant_id=tenant_id)
    other = await queued(database, kind=KIND)
    assert (await waiting_for(database, mine), await waiting_for(database, other)) == ("tenant", None)
