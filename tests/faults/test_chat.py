"""`chat` against a provider that misbehaves: what the reader sees, what the tables say, what was on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.follower import Follower
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.truth import Records, expect_succeeded, records_of
from tests.support.fake_provider import FakeProvider
from tests.support.provider_scripts import SCRIPTS, Exchange, Script, failing, streaming
from tests.support.servers import start_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

ANSWER = streaming("Hello", ", ", "world", ".")


def in_turn(*scripts: Script) -> Script:
    """Each request is met by the next of them."""
    left = iter(scripts)

    async def script(exchange: Exchange) -> None:
        await next(left)(exchange)

    return script


@dataclass(frozen=True, slots=True)
class Talk:
    """A gateway, a worker and the provider it speaks to."""

    house: House
    fake: FakeProvider

    async def run(self, *scripts: Script, **fields: Any) -> tuple[Follower, Records]:
        """One job from POST to its end, each of its requests met by the next script; all of them were needed."""
        self.fake.scripts["m1"] = in_turn(*scripts)
        job = await self.house.api.create_soon("chat", says("hello"), **fields)
        follower = Follower(self.house.api.events_url(job))
        with anyio.fail_after(40):
            await follower.run()
        if follower.reader.outcome and follower.reader.outcome.name == "succeeded":
            await expect_succeeded(self.house.database, self.house.api, job, follower)
        records = await records_of(self.house.database, job)
        assert len(records.calls) == len(self.fake.requests) == len(scripts)
        return follower, records


@pytest.fixture
async def talk(database_url: str, tmp_path: Path) -> AsyncIterator[Talk]:
    async with FakeProvider() as fake, open_house(database_url) as house:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        async with start_worker(database_url, providers=providers):
            yield Talk(house, fake)


def reasons(follower: Follower) -> list[str]:
    return [event.data["reason"] for event in follower.seen if event.name == "attempt"]


async def test_an_answer_is_streamed_recorded_and_priced(talk: Talk) -> None:
    follower, records = await talk.run(ANSWER)
    usage = {"input_tokens": 12, "output_tokens": 5}
    assert follower.reader.result == {
        "text": "Hello, world.",
        "finish_reason": "stop",
        "truncated": False,
        "usage": usage,
    }
    (call,) = records.calls
    assert (call["provider"], call["model"], call["http_status"]) == ("fake", "m1", 200)
    assert (call["outcome"], call["input_tokens"], call["output_tokens"]) == ("succeeded", 12, 5)
    # 12 tokens at $1 a million and 5 at $2.
    assert call["cost_usd"] == Decimal("0.000022")
    assert call["started_at"] <= call["sent_at"] <= call["first_chunk_at"] <= call["finished_at"]


async def test_a_throttled_job_waits_and_no_attempt_is_counted(talk: Talk) -> None:
    throttled = failing(429, "rate_limit_exceeded", retry_after="1")
    follower, records = await talk.run(throttled, ANSWER, max_attempts=1)
    assert follower.reader.text == "Hello, world."
    assert reasons(follower) == ["started", "throttled"]
    assert records.outcomes == [("failed", False), ("succeeded", True)]
    assert records.job["attempts"] == 1
    assert [call["error_class"] for call in records.calls] == ["throttled", None]
    waited_s = (records.attempts[1]["started_at"] - records.attempts[0]["finished_at"]).total_seconds()
    assert waited_s >= 1


async def test_a_provider_that_keeps_failing_exhausts_the_attempts(talk: Talk) -> None:
    follower, records = await talk.run(failing(500), failing(500), max_attempts=2)
    assert reasons(follower) == ["started", "transient_error"]
    assert records.outcomes == [("failed", True), ("failed", True)]
    assert (records.job["status"], records.job["error_class"]) == ("failed", "exhausted")
    # Whether a 500 is billed is not known, and not known is not 0.
    assert [call["cost_usd"] for call in records.calls] == [None, None]


async def test_a_cut_stream_is_unknown_and_repeated_where_that_is_safe(talk: Talk) -> None:
    follower, records = await talk.run(SCRIPTS["cut"], ANSWER)
    assert reasons(follower) == ["started", "unknown_retry"]
    assert [event.data["outcome"] for event in follower.seen if event.name == "external"] == ["unknown", "succeeded"]
    assert "par" in [event.data["text"] for event in follower.seen if event.name == "chunk"]
    assert follower.reader.text == "Hello, world."
    assert records.outcomes == [("unknown", True), ("succeeded", True)]
    assert records.calls[0]["cost_usd"] is None


async def test_a_cut_stream_ends_the_job_where_its_caller_wants_that(talk: Talk) -> None:
    follower, records = await talk.run(SCRIPTS["cut"], on_unknown="fail")
    assert reasons(follower) == ["started"]
    assert records.outcomes == [("unknown", True)]
    assert (records.job["status"], records.job["error_class"]) == ("failed", "unknown")


async def test_a_stream_without_its_terminal_marker_is_no_success(talk: Talk) -> None:
    _, records = await talk.run(SCRIPTS["no-end"], on_unknown="fail")
    assert (records.job["status"], records.job["error_class"]) == ("failed", "unknown")
