"""Workers that die or stop while a generation goes on at the provider: the next one goes on with it, unpaid."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import anyio
import pytest

from schema.calls import list_attempts
from scripted_provider.behaviour import Behaviour
from scripted_provider.provider import ScriptedProvider
from scripted_provider.script import text_of
from tests.faults.house import House, open_house, says
from tests.faults.test_analyze import DOCUMENT, SECTIONS, assert_whole
from tests.faults.test_worker_lost import followed, holder_first, two_workers
from tests.faults.truth import expect_succeeded
from tests.support.processes import ServerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# 40 pieces in 4 s: time enough to lose a worker in the middle, and its lease behind it.
MODEL = "well?rate=10"
WHOLE = text_of(Behaviour("well"))


@dataclass
class Scene:
    """A gateway, two workers, and a provider that generates in the background."""

    house: House
    workers: list[ServerProcess]
    server: ScriptedProvider

    @property
    def asked(self) -> list[str]:
        """What was paid for: the last words of each request that began a generation."""
        posts = (each for each in self.server.requests if each.method == "POST" and each.path == "/v1/responses")
        return [each.json["input"][-1]["content"] for each in posts]


@asynccontextmanager
async def scene(database_url: str, folder: Path, model: str = MODEL) -> AsyncIterator[Scene]:
    providers = folder / "providers.toml"
    async with ScriptedProvider() as server, open_house(database_url) as house:
        providers.write_text(
            f'[providers.there]\ntype = "openai_responses"\nbase_url = "{server.base_url}"\nmodels = ["{model}"]\n'
            "price_input_usd_per_million = 1\nprice_output_usd_per_million = 2\n",
            encoding="utf-8",
        )
        async with two_workers(database_url, providers) as workers:
            yield Scene(house, workers, server)


async def test_a_killed_worker_costs_no_token_and_nothing_twice(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url, tmp_path) as it:
        job = await it.house.api.create_soon("chat", says("go on"), on_unknown="fail")
        async with followed(it.house, job) as follower:
            await follower.sees("chunk")
            lost, _ = await holder_first(it.house, job, it.workers)
            await lost.kill()
            again = await follower.sees("attempt", attempt=2)
        assert again.data["reason"] == "reattached"
        assert again.data["resumes_after"] == (again.cursor or 0) - 1
        records = await expect_succeeded(it.house.database, it.house.api, job, follower)
        assert follower.reader.text == WHOLE == "".join(e.data["text"] for e in follower.seen if e.name == "chunk")
        assert it.asked == ["go on"]
    assert records.outcomes == [("lost", True), ("succeeded", True)]
    assert [(row["outcome"], row["resolved_outcome"], row["cost_usd"] == 0) for row in records.calls] == [
        ("unknown", "continued", True),
        ("succeeded", None, False),
    ]


async def test_a_worker_that_is_stopped_hands_its_generation_over(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url, tmp_path) as it:
        job = await it.house.api.create_soon("chat", says("go on"))
        async with followed(it.house, job) as follower:
            await follower.sees("chunk")
            stopped, _ = await holder_first(it.house, job, it.workers)
            assert await stopped.stop() == 0
            assert (await follower.sees("attempt", attempt=2)).data["reason"] == "reattached"
        records = await expect_succeeded(it.house.database, it.house.api, job, follower)
        assert follower.reader.text == WHOLE
        assert it.asked == ["go on"]
    assert records.outcomes == [("released", False), ("succeeded", True)]


async def test_killed_in_section_7_of_12_not_even_that_one_is_paid_twice(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url, tmp_path, "well?rate=40") as it:
        job = await it.house.api.create_soon("analyze", {"text": DOCUMENT})
        async with followed(it.house, job) as follower:
            await follower.sees("progress", done=6)
            await until(lambda: len(it.asked) == 7)
            known = len(follower.reader.text)
            await until(lambda: len(follower.reader.text) > known)
            lost, _ = await holder_first(it.house, job, it.workers)
            await lost.kill()
            assert (await follower.sees("attempt", attempt=2)).data["reason"] == "reattached"
        await expect_succeeded(it.house.database, it.house.api, job, follower)
        assert_whole(follower, (await it.house.api.get(job["job_id"]))["result"])
        # Each section once, and the synthesis.
        assert len(it.asked) == len(set(it.asked)) == SECTIONS + 1


async def test_what_became_of_a_lost_call_is_learned_after_its_job_s_end(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url, tmp_path) as it:
        job = await it.house.api.create_soon("chat", says("go on"), max_attempts=1)
        job_id = UUID(job["job_id"])
        async with followed(it.house, job) as follower:
            await follower.sees("chunk")
            lost, _ = await holder_first(it.house, job, it.workers)
            await lost.kill()
            await follower.sees("failed")

        async def is_resolved() -> bool:
            (attempt,) = await list_attempts(it.house.database, job_id)
            return attempt.calls[0].resolved_outcome is not None

        with anyio.fail_after(60):
            await until(is_resolved, 60)
        (attempt,) = await list_attempts(it.house.database, job_id)
        (call,) = attempt.calls
        assert (call.outcome, call.resolved_outcome, call.output_tokens) == ("unknown", "succeeded", 40)
        assert (call.cost_usd, call.price_source) == (
            (call.input_tokens or 0) * 1 * call.price_input_usd / 1_000_000 + 40 * call.price_output_usd / 1_000_000
            if call.price_input_usd is not None and call.price_output_usd is not None
            else None,
            "providers file",
        )
