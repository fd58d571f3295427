"""A worker that dies in the middle of a long document: what was done is neither repeated nor lost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import anyio
import pytest

from tests.faults.follower import Follower
from tests.faults.house import open_house, write_providers
from tests.faults.test_worker_lost import followed, holder_first, two_workers
from tests.faults.truth import expect_succeeded
from tests.support.fake_provider import FakeProvider
from tests.support.provider_scripts import USAGE, Exchange

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SECTIONS = 12
DIES_IN = 7
# What USAGE comes to at the prices of write_providers.
A_CALL_USD = (USAGE["prompt_tokens"] * Decimal(1) + USAGE["completion_tokens"] * Decimal(2)) / 1_000_000
DOCUMENT = "\n\n".join(f"# Section {n}\n\nWhat stands in section {n} is this." for n in range(1, SECTIONS + 1))


async def test_killed_in_section_7_of_12_sections_1_to_6_are_not_called_again(
    database_url: str, tmp_path: Path
) -> None:
    reached, answered = anyio.Event(), []

    async def script(exchange: Exchange) -> None:
        asked = exchange.request.json["messages"][-1]["content"]
        answered.append(asked)
        await exchange.head()
        await exchange.text(f"About: {asked[2:12].strip()}. ")
        if len(answered) == DIES_IN:
            reached.set()
            await anyio.sleep_forever()
        await exchange.text("That is all.")
        await exchange.finish()
        await exchange.usage()
        await exchange.done()

    async with FakeProvider() as fake:
        fake.scripts["m1"] = script
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with open_house(database_url) as house, two_workers(database_url, providers) as workers:
            job = await house.api.create_soon(
                "analyze", {"text": DOCUMENT}, provider="fake", model="m1", max_cost_usd="1", on_unknown="retry"
            )
            async with followed(house, job) as follower:
                await reached.wait()
                first, _ = await holder_first(house, job, workers)
                await first.kill()
            records = await expect_succeeded(house.database, house.api, job, follower)
            ended = await house.api.get(job["job_id"])
    assert ended["attempts"] == 2
    assert [row["kept"] for row in records.calls if row["attempt"] == 1] == [*[True] * (DIES_IN - 1), False]
    # Of the section in which it died only the second call: what the first one came to is not the tenant's matter.
    assert Decimal(ended["cost"]["charged_usd"]) == (SECTIONS + 1) * A_CALL_USD
    assert [row["outcome"] for row in records.calls].count("unknown") == 1
    assert len(records.calls) == SECTIONS + 2
    assert_whole(follower, ended["result"])
    sections = [asked for asked in answered if asked.startswith("# Section")]
    # Each once, but for the one in which the first worker died; then the synthesis.
    assert len(sections) == SECTIONS + 1
    assert [n for n in range(1, SECTIONS + 1) if sum(f"section {n} is" in asked for asked in sections) == 2] == [
        DIES_IN
    ]
    assert len(answered) == SECTIONS + 2


def assert_whole(follower: Follower, result: dict[str, object]) -> None:
    assert follower.reader.text == result["text"]
    sections = result["sections"]
    assert isinstance(sections, list)
    assert [section["title"] for section in sections] == [f"Section {n}" for n in range(1, SECTIONS + 1)]
