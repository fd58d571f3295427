"""The built-in kinds: what they accept, what they ask a provider for, and what they return."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import jsonschema_rs
import pytest

from tests.support.fake_provider import FakeProvider
from worker.handlers.chat import CHAT
from worker.handlers.kind import Answer, Json, Kind, Repeat
from worker.handlers.registry import Registry
from worker.handlers.summarize import SUMMARIZE
from worker.providers.extractive import Extractive
from worker.providers.openai_chat import OpenAIChat
from worker.providers.provider import Prompt, Provider, Receipt
from worker.providers.settings import ProviderSettings

EXTRACTIVE = Extractive(ProviderSettings("extractive", "extractive", words_per_second=0))


@dataclass
class Run:
    """What a handler needs of a run, on a real provider; the log is a list."""

    provider: Provider
    job_id: UUID = field(default_factory=uuid4)
    attempt: int = 1
    emitted: list[str] = field(default_factory=list)

    async def emit(self, text: str, channel: str | None = None) -> None:
        if channel is None:
            self.emitted.append(text)

    async def emit_data(self, name: str, value: Json) -> None:
        raise AssertionError(name)

    async def progress(self, done: int, total: int, label: str = "") -> None:
        raise AssertionError(label)

    @property
    def checkpoint(self) -> Json:
        return None

    async def store_checkpoint(self, value: Json) -> None:
        raise AssertionError("no built-in kind of this file stores one")

    def step_key(self, step: str) -> str:
        return f"{self.job_id}:{step}"

    async def call(self, prompt: Prompt) -> Answer:
        receipt = Receipt()
        async with aclosing(self.provider.call(None, prompt, receipt)) as pieces:
            async for piece in pieces:
                await self.emit(piece.text, piece.channel)
        return Answer(
            "".join(self.emitted),
            receipt.finish_reason,
            receipt.truncated,
            receipt.input_tokens,
            receipt.output_tokens,
        )


@pytest.mark.parametrize("kind", [SUMMARIZE, CHAT], ids=lambda kind: kind.name)
def test_schemas_are_schemas(kind: Kind) -> None:
    jsonschema_rs.meta.validate(kind.input_schema)


@pytest.mark.parametrize(
    ("kind", "input", "valid"),
    [
        (SUMMARIZE, {"text": "x"}, True),
        (SUMMARIZE, {"text": "😀" * 1_000_000, "sentences": 50}, True),
        (SUMMARIZE, {"text": "x" * 1_000_001}, False),
        (SUMMARIZE, {"text": ""}, False),
        (SUMMARIZE, {"text": None}, False),
        (SUMMARIZE, {"text": "x", "sentences": 0}, False),
        (SUMMARIZE, {"text": "x", "sentences": 51}, False),
        (SUMMARIZE, {"text": "x", "sentences": 1.5}, False),
        (SUMMARIZE, {"text": "x", "more": 1}, False),
        (SUMMARIZE, {}, False),
        (SUMMARIZE, [], False),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, True),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "temperature": 2, "max_output_tokens": 1}, True),
        (CHAT, {"messages": []}, False),
        (CHAT, {"messages": [{"role": "tool", "content": "Hi"}]}, False),
        (CHAT, {"messages": [{"role": "user", "content": ["Hi"]}]}, False),
        (CHAT, {"messages": [{"role": "user", "content": "Hi", "name": "x"}]}, False),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "temperature": 2.1}, False),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_output_tokens": 0}, False),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}], "model": "x"}, False),
    ],
)  # fmt: skip
def test_what_is_accepted(kind: Kind, input: Json, valid: bool) -> None:
    assert jsonschema_rs.validator_for(kind.input_schema).is_valid(input) is valid


@pytest.mark.anyio
async def test_summarize_on_this_machine() -> None:
    text = " ".join(f"Sentence number {number} is about the sea." for number in range(20))
    run = Run(EXTRACTIVE)
    result = await SUMMARIZE.handler(run, {"text": text})
    assert result == {"text": "".join(run.emitted)}
    assert "".join(run.emitted).count(".") == 7
    run = Run(EXTRACTIVE)
    await SUMMARIZE.handler(run, {"text": text, "sentences": 3.0})
    assert "".join(run.emitted).count(".") == 3


@pytest.mark.anyio
async def test_summarize_with_a_model() -> None:
    async with FakeProvider() as fake:
        run = Run(model_at(fake))
        result = await SUMMARIZE.handler(run, {"text": "Long text.", "sentences": 1})
        messages = fake.requests[0].json["messages"]
    assert result == {"text": "Hello, world."}
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "at most 1 sentence," in messages[0]["content"]
    assert messages[1]["content"] == "Long text."


@pytest.mark.anyio
async def test_chat() -> None:
    async with FakeProvider() as fake:
        turns: Json = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
        run = Run(model_at(fake))
        result = await CHAT.handler(run, {"messages": turns, "max_output_tokens": 9.0, "temperature": 0})
        sent = fake.requests[0].json
    assert result == {
        "text": "Hello, world.",
        "finish_reason": "stop",
        "truncated": False,
        "usage": {"input_tokens": 12, "output_tokens": 5},
    }
    assert (sent["messages"], sent["max_tokens"], sent["temperature"]) == (turns, 9, 0)


@pytest.mark.anyio
async def test_chat_without_usage() -> None:
    class Quiet(Run):
        async def call(self, prompt: Prompt) -> Answer:
            return Answer("ok")

    result = await CHAT.handler(Quiet(EXTRACTIVE), {"messages": [{"role": "user", "content": "Hi"}]})
    assert isinstance(result, dict)
    assert result["usage"] is None


def test_the_registry_keeps_the_newer_version() -> None:
    def kind(version: int) -> Kind:
        return Kind("k", version, {}, Repeat.NEVER, CHAT.handler)

    registry = Registry([kind(2), kind(1)])
    assert registry["k"].version == 2
    registry.add(kind(3))
    assert [one.version for one in registry] == [3]
    assert {one.name for one in Registry()} == {"summarize", "chat", "analyze"}


def model_at(fake: FakeProvider) -> OpenAIChat:
    return OpenAIChat(ProviderSettings("fake", "openai_chat", base_url=fake.base_url, models=("normal",)))
