"""Two who decide the fate of one job at the same moment, on real connections: one of them does, and the other hears
of it. A deadlock, or a wait that is too long, would come out of here as DatabaseBusy.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from uuid import UUID

import anyio
import httpx
import pytest

from schema.database import Database
from schema.endings import Ending, end_runs
from schema.hints import HintSender
from schema.jobs import JobStatus, Reach, cancel_job
from schema.kinds import JobKind, register_kind
from schema.limits import list_limits, set_limit
from schema.runs import Ask, ClaimedRun, claim, heartbeat
from schema.tenants import Tenant, Terms, add_tenant
from tests.faults.house import open_house
from tests.faults.test_dying_workers import odd_worker
from tests.support.api import call_api
from tests.support.crowds import fill
from tests.support.evenly import Evenly
from tests.support.jobs import opened, register
from tests.support.snapshots import Snapshot, look
from worker.reaper import Reaper

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CANCELS_AGAINST_REAPER = 10_000
# As many of them as fit into this, and no fewer than that; OUTLIVE_TEST_RACES_S=600 lets all of them run.
RACES_WITHIN_S = int(os.environ.get("OUTLIVE_TEST_RACES_S", "60"))
FEWEST_RACES = 1_000
CONNECTIONS = 8
# So many decide about the same jobs at once, in different orders.
CROWD = 250
EVERYBODY = Reach(None)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Without asyncio's debug mode, in which ten thousand races would take minutes."""
    return ("asyncio", {"debug": False})


# What a creation would have written too; $1 tenant_id.
_BEGUN = "INSERT INTO outlive.job_events SELECT id, 1, 'status', 0, '{}' FROM outlive.ai_jobs WHERE tenant_id = $1"
_PROMISED = """
WITH job AS (UPDATE outlive.ai_jobs SET reserved_usd = 0.001 WHERE tenant_id = $1 RETURNING id, tenant_id),
promise AS (INSERT INTO outlive.quota_reservations (job_id, tenant_id, month, amount_usd)
    SELECT id, tenant_id, outlive.this_month(), 0.001 FROM job),
entry AS (INSERT INTO outlive.quota_ledger (tenant_id, month, job_id, entry, reserved_usd, charged_usd)
    SELECT tenant_id, outlive.this_month(), id, 'reserve', 0.001, 0 FROM job)
INSERT INTO outlive.quota_accounts (tenant_id, period, reserved_usd)
SELECT tenant_id, 'total', count(*) * 0.001 FROM job GROUP BY tenant_id
"""
_EXPIRED = "UPDATE outlive.job_leases SET lease_until = clock_timestamp() - interval '1 s'"
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def a_crowd(database: Database, count: int, *, expired: bool = False) -> tuple[Tenant, list[ClaimedRun]]:
    """Runs of a tenant with a quota, each with a permit of two scopes."""
    tenant = await add_tenant(database, f"t{uuid.uuid4().hex}", Terms(quota_usd=Decimal(100), quota_period="total"))
    kind = f"k{uuid.uuid4().hex}"
    await register(database, kind, "safe")
    for scope in ("global", f"tenant:{tenant.name}"):
        await set_limit(database, scope, count)
    await fill(database, tenant.id, count, kind=kind)
    for sql in (_BEGUN, _PROMISED):
        await database.execute(sql, tenant.id)
    runs: list[ClaimedRun] = []
    while len(runs) < count:
        runs += (await claim(database, Ask("w", [kind], [], 100, 600))).runs
    if expired:
        await database.execute(_EXPIRED)
    return tenant, runs


async def all_at_once(*works: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Each row of works one after the other, all rows at once."""

    async def one_by_one(row: Sequence[Callable[[], Awaitable[object]]]) -> None:
        for work in row:
            await work()

    async with anyio.create_task_group() as tasks:
        for row in works:
            tasks.start_soon(one_by_one, row)


async def expect_whole(database: Database, tenant: Tenant) -> Snapshot:
    """All invariants, and no deadlock that somebody's second try has hidden."""
    seen = await look(database, [tenant.id])
    seen.check()
    assert await database.fetchval(_DEADLOCKS) == 0
    return seen


async def expect_nothing_held(database: Database, seen: Snapshot) -> None:
    assert {limit.held for limit in await list_limits(database)} == {0}
    assert all(account["reserved_usd"] == 0 for account in seen.accounts)


def reaper(database: Database) -> Reaper:
    return Reaper(database, HintSender(database))


@pytest.mark.timeout(2 * RACES_WITHIN_S + 60)
async def test_up_to_ten_thousand_cancels_against_the_reaper_agree_and_never_deadlock(database_url: str) -> None:
    """They lock in the same order: job, lease, permits, money."""
    order = random.Random(1)
    met: dict[UUID, JobStatus] = {}

    async def cancel(database: Database, run: ClaimedRun) -> None:
        found = await cancel_job(database, EVERYBODY, run.lease.job_id)
        assert found is not None
        met[run.lease.job_id] = found.was

    async with opened(database_url, CONNECTIONS) as database:
        ends_at = anyio.current_time() + RACES_WITHIN_S
        while len(met) < CANCELS_AGAINST_REAPER and anyio.current_time() < ends_at:
            tenant, runs = await a_crowd(database, 4 * CROWD, expired=True)
            for start in range(0, len(runs), CROWD):
                crowd = runs[start : start + CROWD]
                cancels = [partial(cancel, database, run) for run in crowd]
                reaps = [partial(reaper(database)._reap, run.lease.job_id, run.lease.run_token) for run in crowd]
                await all_at_once(*(order.sample(works, CROWD) for works in (cancels, reaps, reaps)))
            # Those that a canceller was just at.
            await reaper(database)._take_back()
            seen = await expect_whole(database, tenant)
            assert {job["status"] for job in seen.jobs.values()} == {"cancelled"}
            await expect_nothing_held(database, seen)
        print(f"{len(met)} races")
        assert len(met) >= FEWEST_RACES
        # Neither was always first, or nothing was shown.
        was = list(met.values())
        assert min(was.count(JobStatus.RUNNING), was.count(JobStatus.QUEUED)) > len(was) / 20


async def test_cancels_against_ends_in_groups_agree(database_url: str) -> None:
    """A wish that met a running job wins; an end that was first stands."""
    order = random.Random(2)
    met: dict[UUID, JobStatus] = {}
    ended: set[UUID] = set()

    async def cancel(database: Database, run: ClaimedRun) -> None:
        found = await cancel_job(database, EVERYBODY, run.lease.job_id)
        assert found is not None
        met[run.lease.job_id] = found.was

    async def end(database: Database, runs: Sequence[ClaimedRun]) -> None:
        ended.update(await end_runs(database, [Ending.succeeded(run.lease, run.last_seq, {}) for run in runs]))

    async with opened(database_url, CONNECTIONS) as database:
        tenant, runs = await a_crowd(database, 2_000)
        for start in range(0, len(runs), CROWD):
            crowd = runs[start : start + CROWD]
            cancels = [partial(cancel, database, run) for run in crowd]
            groups = [order.sample(crowd, 20) for _ in range(60)]
            ends = [partial(end, database, group) for group in groups]
            await all_at_once(order.sample(cancels, CROWD), ends[:20], ends[20:40], ends[40:])
        seen = await expect_whole(database, tenant)
        for job_id, job in seen.jobs.items():
            assert (job["status"] == "succeeded") == (job_id in ended) == (met[job_id] is JobStatus.SUCCEEDED)
        assert 50 < len(ended) < len(runs) - 50, len(ended)


async def test_heartbeats_against_the_reaper_agree(database_url: str) -> None:
    """Either the lease was renewed and the run goes on, or it was taken and the next heartbeat hears of it."""
    order = random.Random(3)
    async with opened(database_url, CONNECTIONS) as database:
        tenant, runs = await a_crowd(database, 2_000, expired=True)
        for start in range(0, len(runs), CROWD):
            crowd = runs[start : start + CROWD]
            beats = [partial(heartbeat, database, [run.lease], 600.0) for run in crowd]
            reaps = [partial(reaper(database)._reap, run.lease.job_id, run.lease.run_token) for run in crowd]
            await all_at_once(order.sample(beats, CROWD), order.sample(reaps, CROWD))
        after = await heartbeat(database, [run.lease for run in runs], 600)
        seen = await expect_whole(database, tenant)
        for run in runs:
            beat = after[run.lease.job_id]
            status = seen.jobs[run.lease.job_id]["status"]
            assert (status, beat.renewed, beat.lost) in {("running", True, False), ("queued", False, True)}
        statuses = [job["status"] for job in seen.jobs.values()]
        assert min(statuses.count("running"), statuses.count("queued")) > 50


async def test_reapers_at_once_take_each_run_back_once(database_url: str) -> None:
    async with opened(database_url, CONNECTIONS) as database:
        tenant, runs = await a_crowd(database, 1_000, expired=True)
        await all_at_once(*([reaper(database)._take_back] for _ in range(4)))
        await reaper(database)._take_back()
        seen = await expect_whole(database, tenant)
        assert {job["status"] for job in seen.jobs.values()} == {"queued"}
        assert [row["outcome"] for of_job in seen.attempts.values() for row in of_job] == ["lost"] * len(runs)
        # To be taken again, and once.
        taken = [Ask(f"w{n}", [runs[0].kind], [], 1_000, 60) for n in range(4)]
        await all_at_once(*([partial(claim, database, ask)] for ask in taken))
        seen = await expect_whole(database, tenant)
        assert {job["attempts"] for job in seen.jobs.values()} == {2}


NOTE = JobKind("note", 1, {"type": "object"}, "safe", 600, False, None, None, {})


async def test_one_key_of_two_users_makes_a_job_for_each(database_url: str) -> None:
    """Keys belong to tenant and user for tokens, however many of their posts arrive at once."""
    async with open_house(database_url) as house:
        await register_kind(house.database, NOTE)
        answers: dict[str, list[httpx.Response]] = {"ann": [], "bob": [], "": []}

        async def post(client: httpx.AsyncClient, user: str) -> None:
            headers = {"Idempotency-Key": "the same"}
            body = {"kind": "note", "input": {}}
            answers[user].append(await client.post("/api/ai/jobs", json=body, headers=headers))

        async def token(user: str) -> str:
            wish = {"user": user, "jobs": "*", "scope": ["create", "read"], "ttl_seconds": 60}
            return str((await house.api.client.post("/api/ai/tokens", json=wish)).json()["token"])

        async with (
            call_api(house.gateway.url, await token("ann")) as ann,
            call_api(house.gateway.url, await token("bob")) as bob,
            anyio.create_task_group() as callers,
        ):
            for _ in range(15):
                for user, api in {"ann": ann, "bob": bob, "": house.api}.items():
                    callers.start_soon(post, api.client, user)
        ids = {user: {answer.json()["job_id"] for answer in of_user} for user, of_user in answers.items()}
        assert [len(of_user) for of_user in ids.values()] == [1, 1, 1]
        assert len(set.union(*ids.values())) == 3
        for of_user in answers.values():
            assert sorted(answer.status_code for answer in of_user) == [200] * 14 + [202]
        assert await house.database.fetchval("SELECT count(*) FROM outlive.ai_jobs") == 3


async def test_five_hundred_cancels_over_http_agree_with_the_end(database_url: str, tmp_path: Path) -> None:
    """202 is a promise: the job ends cancelled. 409 says that it had ended."""
    # A job of half a second or so: one that is over at once has ended before any second request could arrive.
    evenly = Evenly(0.5)
    async with open_house(database_url) as house, odd_worker(database_url, tmp_path):
        await house.api.ended((await house.api.create_soon("note", {}))["job_id"])

        async def race() -> None:
            job = await house.api.create("steps", {})
            await evenly.wait()
            answer = await house.api.client.post(f"/api/ai/jobs/{job['job_id']}/cancel")
            ended = await house.api.ended(job["job_id"])
            assert (answer.status_code, ended["status"]) in {(202, "cancelled"), (409, "succeeded")}
            evenly.won(second=answer.status_code == 202)

        for _ in range(50):
            async with anyio.create_task_group() as races:
                for _ in range(10):
                    races.start_soon(race)
    print(f"{evenly.wins[True]} cancels came first, {evenly.wins[False]} ends")
    assert min(evenly.wins.values()) > 25
