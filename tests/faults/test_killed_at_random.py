"""Workers that are killed and stalled at random under load, for a minute: everything ends, and every book agrees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import orjson
import pytest

from schema import money
from schema.limits import list_limits, set_limit
from schema.tenants import Terms, add_key, add_tenant
from tests.faults.house import House, open_house, says, write_providers
from tests.support.api import Api, call_api
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import ENDS
from tests.support.processes import ServerProcess, run
from tests.support.provider_scripts import Exchange, Script, failing, streaming
from tests.support.servers import environment_for
from tests.support.snapshots import Row, Snapshot, look
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

WORKERS = 3
LEASE_S = 2
LOAD_S = 60.0
# A worker needs 1 to 2 s to start, so that most of the time two of the three are there.
STRIKE_EVERY_S = 2.0
CREATE_EVERY_S = 0.2
# What is left then: the last leases to run out, the last backoffs.
ENDS_WITHIN_S = 60.0
KINDS = Path(__file__).parents[1] / "support" / "odd_kinds.py"


@asynccontextmanager
async def workers_of(house: House, folder: Path, providers: Path) -> AsyncIterator[list[ServerProcess]]:
    settings = {
        "OUTLIVE_LEASE_SECONDS": str(LEASE_S),
        "OUTLIVE_PROVIDERS": str(providers),
        "OUTLIVE_CONCURRENCY": "6",
        "TALLY": str(folder / "tally"),
    }
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                run("worker", environment_for(house.url, settings), "--handlers", str(KINDS))
            )
            for _ in range(WORKERS)
        ]
        for worker in workers:
            await worker.logs("worker ready")
        yield workers


async def strike(workers: list[ServerProcess], order: random.Random, done: Counter[str]) -> None:
    """Kill one and start another; or let one stall for longer than its lease, which is worse."""
    while True:
        await anyio.sleep(STRIKE_EVERY_S * order.uniform(0.5, 1.5))  # it is a clock, and waits for nothing
        worker = order.choice(workers)
        if order.random() < 0.25:
            worker.pause()
            await anyio.sleep(LEASE_S * 1.5)
            worker.resume()
            done["stalled"] += 1
        else:
            await worker.kill()
            await worker.launch()
            done["killed"] += 1


async def load(apis: list[Api], order: random.Random, asked: dict[str, str]) -> None:
    """Jobs of all sorts, without a pause for those that end."""
    while True:
        # Cut off in the middle of a request, it would not know of a job that is there.
        with anyio.CancelScope(shield=True):
            await ask(apis, order, asked)
        await anyio.sleep(CREATE_EVERY_S)


async def ask(apis: list[Api], order: random.Random, asked: dict[str, str]) -> None:
    """One more job, and now and then the wish that it ends."""
    number = len(asked)
    api = apis[number % 2]
    retry: dict[str, Any] = {"max_attempts": 20, "on_unknown": "retry"}
    match number % 5:
        case 0 | 1:
            chat = says(f"job {number}.") | {"max_output_tokens": 100}
            model = order.choice(["m1", "m1", "m2"])
            job = await api.create("chat", chat, model=model, provider="fake", max_cost_usd="0.001", **retry)
        case 2:
            job = await api.create("note", {}, **retry)
        case 3:
            job = await api.create("steps", {}, **retry)
        case _:
            job = await api.create("once", {"say": f"job {number}."}, model="m1", max_cost_usd="0.001")
    asked[job["job_id"]] = f"job {number}."
    if number % 17 == 0:
        await api.client.post(f"/api/ai/jobs/{job['job_id']}/cancel")


def now_and_then(order: random.Random) -> Script:
    """A model that is overloaded, broken or cut off every other time."""
    well = streaming("one ", "two ", "three", gap_s=0.1)

    async def cut(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("one ")
        await exchange.cut()

    async def script(exchange: Exchange) -> None:
        await order.choice([well, well, failing(429, retry_after="1"), failing(500), cut])(exchange)

    return script


def text_of(seen: Snapshot, job: Row) -> str:
    """What a reader has at the end, by the rule of the `attempt` event."""
    text: list[tuple[int, str]] = []
    for event in seen.events[job["id"]]:
        if event["kind"] == "attempt":
            text = [piece for piece in text if piece[0] <= orjson.loads(event["data"])["resumes_after"]]
        elif event["kind"] == "chunk":
            text.append((event["seq"], event["data"]))
    return "".join(piece for _, piece in text)


async def test_a_minute_of_kills_under_load_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    order = random.Random(seed)
    async with FakeProvider() as fake, open_house(database_url, {"OUTLIVE_MAX_STREAMS": "10"}) as house:
        fake.scripts["m1"] = streaming("one ", "two ", "three", gap_s=0.15)
        fake.scripts["m2"] = now_and_then(order)
        payer = await add_tenant(house.database, "payer", Terms(quota_usd=Decimal(50), quota_period="month"))
        key = await add_key(house.database, payer)
        for scope, most in {"global": 9, "provider:fake": 4, "tenant:payer": 5}.items():
            await set_limit(house.database, scope, most)
        asked: dict[str, str] = {}
        done: Counter[str] = Counter()
        async with (
            workers_of(house, tmp_path, write_providers(tmp_path, fake_url=fake.base_url)) as workers,
            call_api(house.gateway.url, key) as paying,
        ):
            with anyio.move_on_after(LOAD_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(strike, workers, order, done)
                    tasks.start_soon(load, [house.api, paying], order, asked)
            for worker in workers:
                worker.resume()
                if not worker.runs:
                    await worker.launch()
            # The model recovers, and nobody waits for minutes whose backoff has grown so long.
            fake.scripts["m2"] = fake.scripts["m1"]
            await until(lambda: _all_ended(house), ENDS_WITHIN_S, what="the end of every job")
        await expect_all_whole(house, fake, asked)
    print(done, len(asked), len(fake.requests))
    assert done["killed"] > 5
    assert done["stalled"] > 0


async def _all_ended(house: House) -> bool:
    await house.database.execute(
        "UPDATE outlive.ai_jobs SET run_at = now() WHERE status = 'scheduled' AND run_at > now()"
    )
    return bool(await house.database.fetchval("SELECT count(*) FROM outlive.ai_jobs WHERE finished_at IS NULL") == 0)


async def expect_all_whole(house: House, fake: FakeProvider, asked: dict[str, str]) -> None:
    tenants = [row["id"] for row in await house.database.fetch("SELECT id FROM outlive.tenants")]
    seen = await look(house.database, tenants)
    seen.check()
    assert {str(job_id) for job_id in seen.jobs} == set(asked)
    assert all(job["status"] in ENDS for job in seen.jobs.values())
    print(Counter((job["kind"], job["status"], job["error_code"]) for job in seen.jobs.values()))
    assert {limit.held for limit in await list_limits(house.database)} == {0}
    assert all(account["reserved_usd"] == 0 for account in seen.accounts)
    assert await money.check(house.database) == []
    outcomes = Counter(row["outcome"] for of_job in seen.attempts.values() for row in of_job)
    assert outcomes["lost"] >= 5, outcomes
    for job in seen.jobs.values():
        if job["kind"] == "once":
            assert job["attempt"] <= 1
        if job["status"] == "succeeded":
            result = await house.database.fetchval(
                "SELECT result FROM outlive.job_contents WHERE job_id = $1", job["id"]
            )
            assert orjson.loads(result)["text"] == text_of(seen, job)
    expect_a_row_for_each_request(seen, fake, asked)


def expect_a_row_for_each_request(seen: Snapshot, fake: FakeProvider, asked: dict[str, str]) -> None:
    sent = Counter(request.json["messages"][-1]["content"] for request in fake.requests)
    assert sent
    assert set(sent) <= set(asked.values())
    for job_id, text in asked.items():
        assert sent[text] <= len(seen.calls[UUID(job_id)])
