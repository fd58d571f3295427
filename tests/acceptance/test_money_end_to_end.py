"""Money through real processes: gateway, worker, and a provider that reports what it likes."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import pytest

from schema.tenants import Terms, add_key, add_tenant
from tests.support.api import Api, Job, call_api
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import opened
from tests.support.money import agrees
from tests.support.processes import run
from tests.support.provider_scripts import Exchange, Script
from tests.support.servers import environment_for, start_gateway

pytestmark = pytest.mark.anyio

HANDLERS = """
    from decimal import Decimal

    from worker.handlers.kind import Json, Repeat, RunContext, kind
    from worker.providers.provider import Message, Prompt

    ASK = Prompt((Message("user", "hello"),))


    @kind("sold", input_schema={"type": "object"}, repeat=Repeat.SAFE, price_usd="0.25")
    async def sold(run: RunContext, input: dict[str, Json]) -> Json:
        return {"text": (await run.call(ASK)).text}


    @kind("thrifty", input_schema={"type": "object"}, repeat=Repeat.SAFE, max_cost_usd="0.5")
    async def thrifty(run: RunContext, input: dict[str, Json]) -> Json:
        while True:
            await run.call(ASK)
"""
# 12 tokens in, 5 out: 17 dollars a million of either make 0.000289.
PROVIDERS = """
    [providers.fake]
    type = "openai_chat"
    base_url = "{url}"
    models = ["normal", "endless", "costs-0.2", "costs-1e300", "costs--1", "costs-NaN", "costs-nothing"]
    price_input_usd_per_million = 17
    price_output_usd_per_million = 17
"""


@dataclass(frozen=True)
class House:
    api: Api
    fake: FakeProvider

    async def done(self, kind: str, **fields: Any) -> Job:
        """A job of this kind that has ended."""
        value = {"messages": [{"role": "user", "content": "hello"}]} if kind == "chat" else {}
        job = await self.api.create_soon(kind, value, **fields)
        return await self.api.ended(job["job_id"])

    async def calls(self, job: Job) -> list[dict[str, Any]]:
        attempts = (await self.api.client.get(f"/api/ai/jobs/{job['job_id']}/attempts")).json()["attempts"]
        return [call for attempt in attempts for call in attempt["calls"]]


def costing(cost: object) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("ok")
        await exchange.finish()
        await exchange.usage(cost=cost)
        await exchange.done()

    return script


async def endless(exchange: Exchange) -> None:
    await exchange.head()
    while not exchange.request.gone.is_set():
        await exchange.text("word " * 80)
        # At the pace of a model; without it this would keep the test's own loop to itself.
        await anyio.sleep(0.005)


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """Of a tenant with a quota of 100 dollars; at the end the books have to agree."""
    (tmp_path / "handlers.py").write_text(textwrap.dedent(HANDLERS))
    async with opened(database_url, 2) as database:
        terms = Terms(quota_usd=Decimal(100), quota_period="month")
        key = await add_key(database, await add_tenant(database, "acme", terms))
    async with FakeProvider() as fake, start_gateway(database_url) as gateway:
        fake.scripts["endless"] = endless
        for cost in ("0.2", "1e300", "-1", "NaN"):
            fake.scripts[f"costs-{cost}"] = costing(cost if cost == "NaN" else float(cost))
        fake.scripts["costs-nothing"] = costing(0)
        providers = tmp_path / "providers.toml"
        providers.write_text(textwrap.dedent(PROVIDERS).format(url=fake.base_url))
        environment = environment_for(database_url, {"OUTLIVE_PROVIDERS": str(providers)})
        async with run("worker", environment, "--handlers", str(tmp_path / "handlers.py")) as worker:
            await worker.logs("worker ready")
            async with call_api(gateway.url, key) as api:
                yield House(api, fake)
    async with opened(database_url, 2) as database:
        await agrees(database)


async def test_results_are_charged_by_what_their_calls_cost(house: House) -> None:
    """As the provider says, else by the tokens that it reports; where it lies, what its tokens cost."""
    for model, charged in [
        ("normal", "0.000289"),
        ("costs-0.2", "0.2"),
        ("costs-nothing", "0"),
        ("costs-1e300", "0.000289"),
        ("costs--1", "0.000289"),
        ("costs-NaN", "0.000289"),
    ]:
        job = await house.done("chat", max_cost_usd="0.5", model=model)
        assert job["status"] == "succeeded", job["error"]
        cost = {"reserved_usd": "0.5", "charged_usd": charged, "provider_usd": charged, "complete": True}
        assert job["cost"] == cost, model


async def test_a_worst_case_is_known_where_the_request_bounds_its_output(house: House) -> None:
    value = {"messages": [{"role": "user", "content": "hello"}], "max_output_tokens": 1000}
    job = await house.api.create_soon("chat", value)
    # As many tokens in as the input has bytes, 2,000 for what a handler adds, and 1,000 that come out at most.
    tokens = len(orjson.dumps(value)) + 2_000 + 1_000
    assert job["cost"]["reserved_usd"] == str(Decimal(17 * tokens) / 1_000_000)
    assert (await house.api.ended(job["job_id"]))["cost"]["charged_usd"] == "0.000289"
    with pytest.raises(httpx.HTTPStatusError, match="cost_limit_required"):
        await house.api.create("chat", {"messages": value["messages"]})


async def test_kinds_with_a_price_and_a_bound_of_their_own(house: House) -> None:
    sold = await house.done("sold", model="costs-0.2")
    assert sold["cost"] == {
        "reserved_usd": "0.25",
        "charged_usd": "0.25",
        "provider_usd": "0.2",
        "complete": True,
    }
    thrifty = await house.done("thrifty", model="costs-0.2")
    assert (thrifty["error"]["class"], thrifty["error"]["code"]) == ("budget", "max_cost_reached")
    assert thrifty["cost"] == {
        "reserved_usd": "0.5",
        "charged_usd": "0.5",
        "provider_usd": "0.6",
        "complete": True,
    }
    assert len(await house.calls(thrifty)) == 3


async def test_an_endless_answer_is_stopped_by_its_budget(house: House) -> None:
    """The request is closed; what it may have cost at least is booked as an estimate, and charged."""
    job = await house.done("chat", max_cost_usd="0.01", model="endless")
    assert (job["error"]["class"], job["error"]["code"]) == ("budget", "max_cost_reached")
    (call,) = await house.calls(job)
    assert (call["outcome"], call["cost_source"], call["cost_is_lower_bound"]) == (
        "cancel_unconfirmed",
        "estimated",
        True,
    )
    assert Decimal("0.01") < Decimal(call["cost_usd"]) < Decimal("0.1")
    assert (job["cost"]["charged_usd"], job["cost"]["complete"]) == ("0.01", False)
    await house.fake.requests[-1].gone.wait()
    log = await house.api.client.get(
        f"/api/ai/jobs/{job['job_id']}/events", params={"limit": 1000}, headers={"Accept": "application/json"}
    )
    events = [(event["event"], event["data"]) for event in log.json()["events"]]
    assert events[-3:-1] == [
        ("cancel_requested", {"by": "budget"}),
        ("external", {"attempt": 1, "call": 1, "outcome": "cancel_unconfirmed"}),
    ]
    assert events[-1][0] == "failed"
