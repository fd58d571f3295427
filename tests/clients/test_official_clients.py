"""The makers' own clients get from the scripted provider what they expect: it is a faithful server."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from scripted_provider.behaviour import Behaviour
from scripted_provider.provider import ScriptedProvider
from scripted_provider.script import text_of

pytestmark = pytest.mark.anyio

ASKED: Any = [{"role": "user", "content": "What is new?"}]
WHOLE = text_of(Behaviour("well"))


def openai_of(server: ScriptedProvider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0)


def anthropic_of(server: ScriptedProvider) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.base_url.removesuffix("/v1"), api_key="k", max_retries=0)


async def test_chat_completions() -> None:
    async with ScriptedProvider() as server, openai_of(server) as client:
        stream = await client.chat.completions.create(
            model="well",
            messages=ASKED,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, reason, usage = "", None, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
    assert (text, reason) == (WHOLE, "stop")
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 40)


async def test_messages() -> None:
    async with (
        ScriptedProvider() as server,
        anthropic_of(server) as client,
        client.messages.stream(model="well", max_tokens=100, messages=ASKED) as stream,
    ):
        text = "".join([part async for part in stream.text_stream])
        message = await stream.get_final_message()
    assert (text, message.stop_reason) == (WHOLE, "end_turn")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 40)


async def test_responses_in_the_background_from_any_event_on() -> None:
    async with ScriptedProvider() as server, openai_of(server) as client:
        stream = await client.responses.create(
            model="well?rate=200", input="What is new?", background=True, store=True, stream=True
        )
        text, at, response_id = "", -1, ""
        async for event in stream:
            at = event.sequence_number
            if event.type == "response.created":
                response_id = event.response.id
            if event.type == "response.output_text.delta":
                text += event.delta
            if len(text) > 50:
                break
        await stream.close()
        async for event in await client.responses.retrieve(response_id, stream=True, starting_after=at):
            if event.type == "response.output_text.delta":
                text += event.delta
        response = await client.responses.retrieve(response_id)
    assert text == response.output_text == WHOLE
    assert (response.status, response.background) == ("completed", True)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 40)


async def test_a_response_is_cancelled_once() -> None:
    async with ScriptedProvider() as server, openai_of(server) as client:
        response = await client.responses.create(model="well?rate=1", input="x", background=True, store=True)
        assert (await client.responses.cancel(response.id)).status == "cancelled"
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(response.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve("resp_nobody")


@pytest.mark.parametrize(
    ("code", "of_openai", "of_anthropic"),
    [
        (400, openai.BadRequestError, anthropic.BadRequestError),
        (401, openai.AuthenticationError, anthropic.AuthenticationError),
        (403, openai.PermissionDeniedError, anthropic.PermissionDeniedError),
        (404, openai.NotFoundError, anthropic.NotFoundError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
        (529, openai.InternalServerError, anthropic.APIStatusError),
    ],
)
async def test_errors(code: int, of_openai: type[Exception], of_anthropic: type[Exception]) -> None:
    async with ScriptedProvider() as server, openai_of(server) as one, anthropic_of(server) as other:
        with pytest.raises(of_openai):
            await one.chat.completions.create(model=f"status?code={code}", messages=ASKED)
        with pytest.raises(of_openai):
            await one.responses.create(model=f"status?code={code}", input="x")
        with pytest.raises(of_anthropic):
            await other.messages.create(model=f"status?code={code}", max_tokens=9, messages=ASKED)


async def test_an_error_in_mid_stream() -> None:
    async with ScriptedProvider() as server, openai_of(server) as one, anthropic_of(server) as other:
        with pytest.raises(openai.APIError):
            async for _ in await one.chat.completions.create(model="stream-error", messages=ASKED, stream=True):
                pass
        with pytest.raises(anthropic.APIStatusError):
            async with other.messages.stream(model="stream-error", max_tokens=9, messages=ASKED) as stream:
                await stream.get_final_text()


async def test_what_these_clients_take_for_a_success() -> None:
    """The reason for adapters of our own: an answer that ended in the middle raises nothing here."""
    async with ScriptedProvider() as server, openai_of(server) as client:
        stream = await client.chat.completions.create(model="no-end", messages=ASKED, stream=True)
        text = "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])
    assert text == text_of(Behaviour("well", pieces=3))
