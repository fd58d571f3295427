"""Workers whose process dies, stands still or is blocked by a handler: attempts end, nothing is started that may not
be, and what a revived one still says changes nothing, be it text, a permit or money.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schema.limits import set_limit
from schema.tenants import Terms, find_tenant, set_terms
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.test_killed_at_random import KINDS
from tests.faults.test_worker_lost import _wake, followed, holder_first
from tests.faults.truth import records_of
from tests.support.api import Job
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import job_row, lease_row
from tests.support.processes import ServerProcess, run
from tests.support.provider_scripts import failing
from tests.support.proxy import proxy_to
from tests.support.servers import environment_for
from tests.support.snapshots import Snapshot, look
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

LEASE_S = 2


@asynccontextmanager
async def odd_worker(
    url: str, folder: Path, providers: Path | None = None, more: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """One that knows the odd kinds and has a short lease."""
    settings = {"OUTLIVE_LEASE_SECONDS": str(LEASE_S), "TALLY": str(folder / "tally"), **(more or {})}
    settings |= {"OUTLIVE_PROVIDERS": str(providers)} if providers else {}
    async with run("worker", environment_for(url, settings), "--handlers", str(KINDS)) as worker:
        await worker.logs("worker ready")
        yield worker


def starts_of(folder: Path, job: Job) -> int:
    """How often the handler of a job was really begun."""
    return (folder / "tally").read_text(encoding="utf-8").count(job["job_id"])


async def test_a_handler_that_ends_its_process_is_begun_exactly_max_attempts_times(
    database_url: str, tmp_path: Path
) -> None:
    async with open_house(database_url) as house, odd_worker(database_url, tmp_path) as worker:
        job = await house.api.create_soon("dies", {}, max_attempts=3)
        for _ in range(3):
            assert await worker.wait() == 77
            await worker.launch()
        ended = await house.api.ended(job["job_id"])
        assert (ended["status"], ended["error"]["class"], ended["attempts"]) == ("failed", "exhausted", 3)
        assert starts_of(tmp_path, job) == 3
        records = await records_of(house.database, job)
        assert records.outcomes == [("lost", True)] * 3
        # And the worker that ended it lives.
        note = await house.api.create("note", {})
        assert (await house.api.ended(note["job_id"]))["status"] == "succeeded"


async def test_what_is_never_safe_is_never_begun_twice_wherever_its_worker_dies(
    database_url: str, tmp_path: Path
) -> None:
    """Before its call, in it, after it: where nothing had been sent its handler may have done other things."""
    async with FakeProvider() as fake, open_house(database_url) as house:
        silent = Pieces(["never said"])
        fake.scripts["m1"] = silent.script
        answered = Pieces(["said"])
        answered.release_all()
        fake.scripts["m2"] = answered.script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        wish: dict[str, Any] = {"on_unknown": "retry", "max_attempts": 20}
        async with odd_worker(database_url, tmp_path, providers) as worker:
            before = await house.api.create_soon("once", {"waits": "before"}, model="m1", **wish)
            within = await house.api.create("once", {}, model="m1", **wish)
            after = await house.api.create("once", {"waits": "after"}, model="m2", **wish)
            jobs = [before, within, after]
            async with followed(house, before) as one, followed(house, after) as other:
                await one.sees("progress", label="before")
                await other.sees("progress", label="after")
                await fake.arrived(2)
                await worker.kill()
                await worker.launch()
            for job in jobs:
                ended = await house.api.ended(job["job_id"])
                assert (ended["status"], ended["error"]["class"], ended["attempts"]) == ("failed", "unknown", 1)
                assert starts_of(tmp_path, job) == 1
        calls = [(await records_of(house.database, job)).call_outcomes for job in jobs]
        assert calls == [[], [(1, "unknown")], [(1, "succeeded")]]
        assert len(fake.requests) == 2


async def _everything(house: House) -> Snapshot:
    tenants = await house.database.fetch("SELECT id FROM outlive.tenants")
    seen = await look(house.database, [row["id"] for row in tenants])
    seen.check()
    return seen


async def test_a_frozen_worker_that_is_revived_changes_no_permit_and_no_account(
    database_url: str, tmp_path: Path
) -> None:
    """It has text, the end of a call with its cost and a result to write, and none of it is written."""
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        tenant = await find_tenant(house.database, "acme")
        await set_terms(house.database, tenant, Terms(quota_usd=Decimal(1), quota_period="total"))
        for scope in ("global", "provider:fake", "tenant:acme"):
            await set_limit(house.database, scope, 1)
        async with (
            odd_worker(database_url, tmp_path, providers) as one,
            odd_worker(database_url, tmp_path, providers) as two,
        ):
            stale, fresh = Pieces(["stale, "] * 3), Pieces(["fresh"])
            fake.scripts["m1"] = stale.script
            job = await house.api.create_soon("chat", says("go on"), max_cost_usd="0.1", on_unknown="retry")
            async with followed(house, job) as follower:
                stale.release()
                await follower.sees("chunk")
                frozen, other = await holder_first(house, job, [one, two])
                frozen.pause()
                stale.release_all()
                fake.scripts["m1"] = fresh.script
                # While it is frozen the other one has its permits, and holds them still when it is revived.
                await follower.sees("attempt", attempt=2)
                held = await _everything(house)
                await _wake(frozen)
                now = await _everything(house)
                assert now.permits == held.permits
                assert now.leases.keys() == held.leases.keys()
                fresh.release_all()
            before = await _everything(house)
            assert before.jobs[UUID(job["job_id"])]["status"] == "succeeded"
            assert all(slot["holder"] is None for slots in before.permits.values() for slot in slots)
            assert before.accounts[0]["reserved_usd"] == 0
            # A frozen one that comes back when all is over.
            assert await other.stop() == 0
            frozen.expect_running()
            assert await _everything(house) == before


async def test_a_handler_that_blocks_its_worker_for_longer_than_a_lease_costs_no_run(
    database_url: str, tmp_path: Path
) -> None:
    """Neither its own nor those beside it, though another worker is there to take them."""
    async with FakeProvider() as fake, open_house(database_url) as house:
        said = Pieces(["before, ", "after"])
        fake.scripts["m1"] = said.script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(database_url, tmp_path, providers) as worker:
            chat = await house.api.create_soon("chat", says("go on"), on_unknown="retry")
            async with followed(house, chat) as follower:
                said.release()
                await follower.sees("chunk")
                job = await house.api.create("busy", {"seconds": 4 * LEASE_S})
                async with followed(house, job) as of_busy:
                    await of_busy.sees("chunk")
                    async with odd_worker(database_url, tmp_path, providers):
                        # It looks after expired leases all the time that the first one computes.
                        await house.api.ended(job["job_id"])
                said.release_all()
            assert (await house.api.ended(chat["job_id"]))["attempts"] == 1
            assert (await house.api.ended(job["job_id"]))["status"] == "succeeded"
            assert "lease" not in worker.log_text()


async def test_calls_are_closed_before_the_lease_of_a_worker_without_a_database_has_run_out(
    database_url: str, tmp_path: Path
) -> None:
    """By the database's own clock, which the worker does not know."""
    more = {"OUTLIVE_LEASE_SECONDS": "4"}
    async with FakeProvider() as fake, open_house(database_url) as house, proxy_to(database_url) as proxy:
        said = Pieces(["one"])
        fake.scripts["m1"] = said.script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(proxy.url, tmp_path, providers, more):
            job = await house.api.create_soon("chat", says("go on"))
            (request,) = await fake.arrived(1)
            proxy.freeze()
            frozen_at = time.monotonic()
            await request.gone.wait()
            lease = await lease_row(house.database, UUID(job["job_id"]))
            assert lease is not None
            assert await house.database.fetchval("SELECT clock_timestamp() < $1", lease["lease_until"])
            assert time.monotonic() - frozen_at < 4
            proxy.thaw()


async def test_throttling_does_not_count_and_ends_after_an_hour_in_all(database_url: str, tmp_path: Path) -> None:
    """A provider that always says 429; the hour is made to pass by hand."""
    async with FakeProvider() as fake, open_house(database_url) as house:
        fake.scripts["m1"] = failing(429, retry_after="7")
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with odd_worker(database_url, tmp_path, providers):
            job = await house.api.create_soon("chat", says("go on"), max_attempts=1)
            job_id = UUID(job["job_id"])

            async def waits() -> int:
                row = await job_row(house.database, job_id)
                return int(row["throttled_s"]) if row["status"] == "scheduled" else 0

            assert 7 < await until(waits) <= 7 + 5
            assert (await house.api.get(job["job_id"]))["attempts"] == 0
            again = "UPDATE outlive.ai_jobs SET throttled_s = 3595, run_at = now() WHERE id = $1"
            await house.database.execute(again, job_id)
            ended = await house.api.ended(job["job_id"])
        assert (ended["status"], ended["error"]["class"], ended["attempts"]) == ("failed", "exhausted", 1)
        assert "hour" in ended["error"]["message"]
        assert len(fake.requests) == 2
        assert (await records_of(house.database, job)).outcomes == [("failed", False), ("failed", True)]
