"""Whatever a provider does, in each wire format: how the call ends, of what class, after one request on the wire."""

from __future__ import annotations

import socket
from contextlib import aclosing, suppress
from dataclasses import dataclass
from decimal import Decimal

import anyio
import httpx2
import pytest

from scripted_provider.behaviour import Behaviour
from scripted_provider.exchange import Exchange
from scripted_provider.provider import ScriptedProvider
from scripted_provider.script import text_of
from scripted_provider.server import Server
from worker.providers.catalog import Catalog
from worker.providers.openai_chat import OpenAIChat
from worker.providers.profile import PROFILES, profile_for
from worker.providers.provider import (
    CallFailed,
    CallIds,
    CallOutcome,
    ErrorClass,
    Message,
    Prompt,
    Provider,
    Receipt,
    TokenPrice,
)
from worker.providers.settings import ProviderSettings, ProviderType
from worker.providers.watchdog import TimeLimits

pytestmark = pytest.mark.anyio

TYPES: tuple[ProviderType, ...] = ("openai_chat", "anthropic", "openai_responses")
PROMPT = Prompt((Message("system", "Be brief."), Message("user", "What is new?")))
PRICE = TokenPrice(Decimal(1), Decimal(2))
SHORT = TimeLimits(connect_s=2.0, first_chunk_s=1.0, silence_s=1.0, total_s=30.0)

SUCCEEDED, FAILED, UNKNOWN = CallOutcome.SUCCEEDED, CallOutcome.FAILED, CallOutcome.UNKNOWN
PERMANENT, REFUSED = ErrorClass.PERMANENT, ErrorClass.REFUSED
TRANSIENT, THROTTLED, LOST = ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.UNKNOWN


@dataclass(frozen=True)
class Row:
    """What is asked for, and what has to become of it. `zero`: it is known to have cost nothing."""

    model: str
    outcome: CallOutcome
    error_class: ErrorClass | None = None
    zero: bool = False
    truncated: bool = False

    def __str__(self) -> str:
        return self.model


ROWS = [
    Row("well", SUCCEEDED),
    Row("well?chunk=1&crlf=1", SUCCEEDED),
    Row("well?chunk=7", SUCCEEDED),
    Row("empty", SUCCEEDED),
    Row("huge", SUCCEEDED),
    Row("length", SUCCEEDED, truncated=True),
    Row("refusal", FAILED, REFUSED),
    Row("filter", FAILED, REFUSED),
    Row("status?code=400", FAILED, PERMANENT, zero=True),
    Row("status?code=401", FAILED, PERMANENT, zero=True),
    Row("status?code=402&error=billing_error", FAILED, PERMANENT, zero=True),
    Row("status?code=403", FAILED, PERMANENT, zero=True),
    Row("status?code=404", FAILED, PERMANENT, zero=True),
    Row("status?code=405", FAILED, PERMANENT, zero=True),
    Row("status?code=413", FAILED, PERMANENT, zero=True),
    Row("status?code=422", FAILED, PERMANENT, zero=True),
    Row("status?code=408", UNKNOWN, LOST),
    Row("status?code=409", FAILED, TRANSIENT),
    Row("status?code=429", FAILED, THROTTLED, zero=True),
    Row("status?code=500", FAILED, TRANSIENT),
    Row("status?code=502", UNKNOWN, LOST),
    Row("status?code=503", FAILED, TRANSIENT, zero=True),
    Row("status?code=504", UNKNOWN, LOST),
    Row("status?code=529", FAILED, TRANSIENT, zero=True),
    Row("silent", UNKNOWN, LOST),
    Row("stall", UNKNOWN, LOST),
    Row("pings", UNKNOWN, LOST),
    Row("cut", UNKNOWN, LOST),
    Row("well?bytes=1", UNKNOWN, LOST),
    Row("well?bytes=900", UNKNOWN, LOST),
    Row("no-end", UNKNOWN, LOST),
    Row("error-200", FAILED, TRANSIENT),
    Row("stream-error", FAILED, TRANSIENT),
    Row("stream-error?error=overloaded_error", FAILED, TRANSIENT),
    Row("stream-error?error=invalid_request_error", FAILED, PERMANENT),
]
# In the background the connection is not the generation: what is said of one here is not said of the other.
CONNECTION_ONLY = ("well", "stall", "cut", "no-end", "silent", "status")


def provider_of(
    kind: ProviderType, url: str, limits: TimeLimits | None = None, header: str | None = None
) -> Provider:
    table = ProviderSettings(
        "p",
        kind,
        base_url=url,
        api_key="k",
        limits=limits or TimeLimits(),
        price=PRICE,
        idempotency_header=header,
    )
    return Catalog([table]).provider("p")


async def heard(provider: Provider, model: str, receipt: Receipt) -> str:
    """The text of one call, also of one that fails."""
    said: list[str] = []
    with suppress(CallFailed):
        async with aclosing(provider.call(model, PROMPT, receipt)) as pieces:
            async for piece in pieces:
                said.append(piece.text)  # noqa: PERF401 - what came before a failure counts too
    return "".join(said)


def cases() -> list[tuple[ProviderType, Row]]:
    return [
        (kind, row)
        for kind in TYPES
        for row in ROWS
        if kind != "openai_responses" or row.model.partition("?")[0] in CONNECTION_ONLY
    ]


@pytest.mark.parametrize(("kind", "row"), cases(), ids=str)
async def test_how_a_call_ends(kind: ProviderType, row: Row) -> None:
    receipt = Receipt()
    async with ScriptedProvider() as server:
        limits = SHORT if row.model in {"silent", "stall", "pings"} else None
        text = await heard(provider_of(kind, server.base_url, limits), row.model, receipt)
        assert len(server.requests) == 1
    assert (receipt.outcome, receipt.error_class, receipt.truncated) == (row.outcome, row.error_class, row.truncated)
    assert (receipt.cost_usd == 0) == row.zero
    if row.outcome is SUCCEEDED:
        whole = text_of(Behaviour.of(row.model))
        assert text.replace("x" * 3_000_000, "") == whole
        assert receipt.usage_source == "provider"
        assert receipt.cost_usd
    elif row.outcome is UNKNOWN:
        assert receipt.cost_is_lower_bound
        assert receipt.cost_usd is None
        assert receipt.sent_at is not None


@pytest.mark.parametrize("kind", TYPES)
async def test_nobody_there_is_free_and_may_pass(kind: ProviderType) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        receipt = Receipt()
        await heard(provider_of(kind, f"http://127.0.0.1:{taken.getsockname()[1]}/v1"), "well", receipt)
    assert (receipt.outcome, receipt.error_class) == (FAILED, TRANSIENT)
    assert receipt.cost_usd == 0
    assert receipt.sent_at is None


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("wish", "least", "most"),
    [("retry=7", 7, 7), ("retry_ms=1500", 1.5, 1.5), ("retry_date=60", 50, 60), ("", None, None)],
)
async def test_every_form_of_retry_after(
    kind: ProviderType, wish: str, least: float | None, most: float | None
) -> None:
    receipt = Receipt()
    async with ScriptedProvider() as server:
        await heard(provider_of(kind, server.base_url), f"status?code=429&{wish}".rstrip("&"), receipt)
    if least is None or most is None:
        assert receipt.retry_after_s is None
    else:
        assert receipt.retry_after_s is not None
        assert least <= receipt.retry_after_s <= most


@pytest.mark.parametrize("kind", TYPES)
async def test_quota_that_a_person_has_to_raise_is_no_throttling(kind: ProviderType) -> None:
    error = "billing_error" if kind == "anthropic" else "insufficient_quota"
    receipt = Receipt()
    async with ScriptedProvider() as server:
        await heard(provider_of(kind, server.base_url), f"status?code=429&error={error}&retry=1", receipt)
    assert (receipt.outcome, receipt.error_class, receipt.code) == (FAILED, PERMANENT, error)


@pytest.mark.parametrize("kind", ["openai_chat", "anthropic"])
async def test_a_reader_that_stops_closes_the_connection_at_once(kind: ProviderType) -> None:
    receipt = Receipt()
    async with ScriptedProvider() as server:
        provider = provider_of(kind, server.base_url)
        async with aclosing(provider.call("well?rate=50&pieces=10000", PROMPT, receipt)) as pieces:
            async for piece in pieces:
                if piece.text:
                    break
        with anyio.fail_after(5):
            await server.requests[0].gone.wait()
    assert (receipt.outcome, receipt.cost_usd, receipt.cost_is_lower_bound) == (
        CallOutcome.CANCEL_UNCONFIRMED,
        None,
        True,
    )


@pytest.mark.parametrize("kind", TYPES)
async def test_what_its_tokens_cost_with_the_prices_and_their_date(kind: ProviderType) -> None:
    receipt = Receipt()
    async with ScriptedProvider() as server:
        await heard(provider_of(kind, server.base_url), "well", receipt)
    assert receipt.input_tokens is not None
    assert receipt.output_tokens == 40
    assert receipt.cost_usd == (receipt.input_tokens * 1 + Decimal(40 * 2)) / 1_000_000
    assert (receipt.price_used, receipt.price_source) == (PRICE, "providers file")
    assert receipt.priced_at is not None


@pytest.mark.parametrize("kind", ["openai_chat", "openai_responses"])
async def test_the_step_s_key_goes_only_where_an_endpoint_deduplicates_by_it(kind: ProviderType) -> None:
    prompt = Prompt(PROMPT.messages, step_key="job:step")
    async with ScriptedProvider() as server:
        for header in ("Idempotency-Key", None):
            provider = provider_of(kind, server.base_url, header=header)
            async with aclosing(provider.call("well", prompt, Receipt())) as pieces:
                assert [piece async for piece in pieces]
        assert [request.headers.get("idempotency-key") for request in server.requests] == ["job:step", None]


async def test_what_a_lost_completion_came_to_is_asked_by_its_id() -> None:
    """Of a server that tells, by OpenRouter's address; the others are not asked."""
    async with ScriptedProvider() as server:
        for profile in ("openrouter", "compatible"):
            table = ProviderSettings("p", "openai_chat", base_url=server.base_url, profile=PROFILES[profile])
            provider = OpenAIChat(table)
            receipt = Receipt()
            await heard(provider, "cut", receipt)
            assert receipt.provider_request_id is not None
            found = await provider.look_up("cut", CallIds(None, receipt.provider_request_id))
            if profile == "compatible":
                assert found is None
                assert not provider.can_look_up
                break
            assert found is not None
            assert (found.outcome, found.cost_source) == (SUCCEEDED, "provider")
            assert found.cost_usd == Decimal("0.004")
            assert await provider.look_up("cut", CallIds(None, "gen-of-nobody")) is None


async def test_where_the_close_is_known_to_stop_a_call_it_is_cancelled() -> None:
    receipt = Receipt()
    async with ScriptedProvider() as server:
        table = ProviderSettings("p", "openai_chat", base_url=server.base_url, profile=PROFILES["llamacpp"])
        async with aclosing(OpenAIChat(table).call("well?rate=50", PROMPT, receipt)) as pieces:
            async for _ in pieces:
                break
        await server.requests[0].gone.wait()
    assert (receipt.outcome, receipt.cost_is_lower_bound) == (CallOutcome.CANCELLED, True)


@pytest.mark.parametrize(("profile", "outcome"), [("ollama", SUCCEEDED), ("openai", UNKNOWN)])
async def test_done_without_a_reason_is_an_end_where_the_profile_says_so(profile: str, outcome: CallOutcome) -> None:
    async def only_done(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.raw(
            b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
        )
        await exchange.raw(b"data: [DONE]\n\n")
        await exchange.end()

    receipt = Receipt()
    async with Server(only_done) as server:
        table = ProviderSettings("p", "openai_chat", base_url=server.base_url, profile=PROFILES[profile])
        assert await heard(OpenAIChat(table), "m", receipt) == "hi"
    assert receipt.outcome is outcome


def test_profiles_are_chosen_by_the_host_where_that_is_certain() -> None:
    for url, name in {
        "https://api.openai.com/v1": "openai",
        "https://x.openai.azure.com/openai/v1": "openai",
        "https://openrouter.ai/api/v1": "openrouter",
        "https://api.deepseek.com": "deepseek",
        "https://notopenai.com/v1": "compatible",
        "http://127.0.0.1:8000/v1": "compatible",
    }.items():
        assert profile_for(url).name == name


async def test_every_request_and_whether_its_client_left_is_told_without_its_key() -> None:
    async with ScriptedProvider() as server:
        await heard(provider_of("openai_chat", server.base_url), "well", Receipt())
        await heard(provider_of("anthropic", server.base_url), "cut", Receipt())
        async with httpx2.AsyncClient() as client:
            told = (await client.get(server.base_url.removesuffix("/v1") + "/log")).json()
    assert [each["target"] for each in told] == ["/v1/chat/completions", "/v1/messages"]
    assert [each["body"]["model"] for each in told] == ["well", "cut"]
    assert "Bearer" not in repr(told)
    assert "x-api-key" not in repr(told)


@pytest.mark.parametrize(("model", "whole"), [("goes-on?rate=100", True), ("well?rate=100", False)])
async def test_a_provider_may_generate_on_though_nobody_listens(model: str, whole: bool) -> None:
    """Which is why a call that was stopped after it was sent is not said to be cancelled."""
    receipt = Receipt()
    async with ScriptedProvider() as server:
        async with aclosing(provider_of("openai_chat", server.base_url).call(model, PROMPT, receipt)) as pieces:
            async for piece in pieces:
                if piece.text:
                    break
        (request,) = server.requests
        await request.answered.wait()
        assert (request.generated == 40) == whole
    assert receipt.outcome is CallOutcome.CANCEL_UNCONFIRMED
