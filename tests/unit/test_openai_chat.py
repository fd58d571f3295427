"""Every way in which one call to an OpenAI-compatible provider can end, on a real socket."""

from __future__ import annotations

import socket
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal

import anyio
import pytest
import uvloop

from tests.support.fake_provider import FakeProvider
from tests.support.provider_scripts import Exchange, Script, answering, failing, stepping, streaming
from worker.providers import http_call
from worker.providers.openai_chat import OpenAIChat
from worker.providers.prices import Usage, settle
from worker.providers.provider import CallFailed, CallOutcome, ErrorClass, Message, Piece, Prompt, Receipt, TokenPrice
from worker.providers.settings import ProviderSettings
from worker.providers.watchdog import TimeLimits

pytestmark = pytest.mark.anyio

PROMPT = Prompt((Message("user", "Hi"),))
SHORT = TimeLimits(connect_s=2.0, first_chunk_s=1.0, silence_s=1.0, total_s=30.0)


def provider(fake: FakeProvider, limits: TimeLimits | None = None) -> OpenAIChat:
    settings = ProviderSettings("fake", "openai_chat", base_url=fake.base_url, api_key="k", models=("normal",))
    return OpenAIChat(replace(settings, limits=limits or TimeLimits()))


async def collect(
    chat: OpenAIChat,
    model: str | None,
    receipt: Receipt,
    prompt: Prompt = PROMPT,
    into: list[Piece] | None = None,
) -> list[Piece]:
    """All pieces of one call; `into` keeps those before a failure."""
    seen = [] if into is None else into
    async with aclosing(chat.call(model, prompt, receipt)) as pieces:
        async for piece in pieces:
            seen.append(piece)
    return seen


async def text_of(script: Script) -> tuple[str, Receipt]:
    """The text of a call that succeeds, and its receipt."""
    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = script
        pieces = await collect(provider(fake), "m", receipt)
        assert len(fake.requests) == 1
    assert receipt.outcome is CallOutcome.SUCCEEDED
    return "".join(piece.text for piece in pieces if piece.channel is None), receipt


async def failure_of(script: Script | str, limits: TimeLimits | None = None, *, text: str | None = None) -> Receipt:
    """The receipt of a call that does not succeed, after exactly one request on the wire."""
    receipt, seen = Receipt(), list[Piece]()
    async with FakeProvider() as fake:
        if not isinstance(script, str):
            fake.scripts["m"] = script
        model = script if isinstance(script, str) else "m"
        with pytest.raises(CallFailed) as caught:
            await collect(provider(fake, limits), model, receipt, into=seen)
        assert len(fake.requests) == 1
    assert caught.value.receipt is receipt
    assert text is None or "".join(piece.text for piece in seen) == text
    return receipt


async def test_a_whole_answer() -> None:
    text, receipt = await text_of(streaming("Hello", ", ", "world", "."))
    assert text == "Hello, world."
    assert receipt.sent_at
    assert receipt.first_chunk_at
    assert receipt.sent_at <= receipt.first_chunk_at
    assert (receipt.http_status, receipt.provider_request_id) == (200, "req-1")
    assert (receipt.finish_reason, receipt.truncated, receipt.error_class) == ("stop", False, None)
    assert (receipt.input_tokens, receipt.output_tokens, receipt.usage_source) == (12, 5, "provider")
    assert receipt.cost_usd is None, "a loopback address has no known price, and unknown is not 0"


async def test_what_is_sent() -> None:
    prompt = Prompt((Message("system", "a\ud800\x00"), Message("user", "b")), 99, 0.5)
    async with FakeProvider() as fake:
        await collect(provider(fake), None, Receipt(), prompt)
        request = fake.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["accept-encoding"] == "identity"
    assert request.json == {
        "model": "normal",
        "messages": [{"role": "system", "content": "a\ufffd\ufffd"}, {"role": "user", "content": "b"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "temperature": 0.5,
    }


@pytest.mark.parametrize(
    ("script", "error_class", "code"),
    [
        (failing(400, "context_length_exceeded"), ErrorClass.PERMANENT, "context_length_exceeded"),
        (failing(400, None, "invalid_request_error"), ErrorClass.PERMANENT, "invalid_request_error"),
        (failing(400, "content_filter"), ErrorClass.REFUSED, "content_filter"),
        (failing(401, "invalid_api_key"), ErrorClass.PERMANENT, "invalid_api_key"),
        (answering(401, b"<html>no</html>"), ErrorClass.PERMANENT, "http_401"),
        (failing(402), ErrorClass.PERMANENT, "http_402"),
        (failing(403), ErrorClass.PERMANENT, "http_403"),
        (failing(404, "model_not_found"), ErrorClass.PERMANENT, "model_not_found"),
        (failing(405), ErrorClass.PERMANENT, "http_405"),
        (failing(413), ErrorClass.PERMANENT, "http_413"),
        (failing(422), ErrorClass.PERMANENT, "http_422"),
        (failing(429, "insufficient_quota"), ErrorClass.PERMANENT, "insufficient_quota"),
        (failing(429, "billing_hard_limit_reached"), ErrorClass.PERMANENT, "billing_hard_limit_reached"),
        (failing(503, "org_spend_limit_reached"), ErrorClass.PERMANENT, "org_spend_limit_reached"),
        (failing(429, "rate_limit_exceeded"), ErrorClass.THROTTLED, "rate_limit_exceeded"),
        (failing(503, None, "overloaded_error"), ErrorClass.TRANSIENT, "overloaded_error"),
        (failing(529), ErrorClass.TRANSIENT, "http_529"),
    ],
)
async def test_turned_away_at_no_cost(script: Script, error_class: ErrorClass, code: str) -> None:
    receipt = await failure_of(script)
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, error_class)
    assert (receipt.code, receipt.cost_usd) == (code, Decimal(0))


@pytest.mark.parametrize(("status", "code"), [(409, "http_409"), (500, "http_500")])
async def test_failed_and_maybe_billed(status: int, code: str) -> None:
    receipt = await failure_of(failing(status))
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, ErrorClass.TRANSIENT)
    assert (receipt.code, receipt.cost_usd) == (code, None)


@pytest.mark.parametrize("status", [408, 502, 504, 520, 524])
async def test_somebody_in_between_gave_up(status: int) -> None:
    receipt = await failure_of(answering(status, b"<html>Bad gateway</html>", content_type="text/html"))
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.UNKNOWN, ErrorClass.UNKNOWN)
    assert (receipt.code, receipt.cost_usd, receipt.cost_is_lower_bound) == (f"http_{status}", None, True)


async def test_a_redirect_is_not_followed() -> None:
    receipt = await failure_of(answering(307, b"", location="/elsewhere"))
    assert (receipt.error_class, receipt.code) == (ErrorClass.PERMANENT, "http_307")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
async def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    receipt = await failure_of(failing(429, **headers))
    assert (receipt.error_class, receipt.retry_after_s) == (ErrorClass.THROTTLED, seconds)


async def test_a_code_that_might_be_a_secret_is_not_kept() -> None:
    receipt = await failure_of(failing(401, "sk-Abc123Def456"))
    assert receipt.code == "http_401"


async def test_nobody_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    settings = ProviderSettings("gone", "openai_chat", base_url=f"http://127.0.0.1:{port}", models=("m",))
    receipt = Receipt()
    with pytest.raises(CallFailed):
        await collect(OpenAIChat(settings), "m", receipt)
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, ErrorClass.TRANSIENT)
    assert (receipt.code, receipt.sent_at, receipt.cost_usd) == ("connect_failed", None, Decimal(0))


async def test_a_body_that_never_got_out_whole_is_safe_to_repeat() -> None:
    """The server reads nothing: 8 MB do not fit into the socket buffers, so the provider cannot have begun."""
    prompt = Prompt((Message("user", "x" * 8_000_000),))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        receipt = Receipt()
        settings = ProviderSettings("deaf", "openai_chat", base_url=address, models=("m",), limits=SHORT)
        with pytest.raises(CallFailed):
            await collect(OpenAIChat(settings), "m", receipt, prompt)
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, ErrorClass.TRANSIENT)
    assert (receipt.sent_at, receipt.cost_usd) == (None, Decimal(0))


async def test_silence_before_the_headers() -> None:
    receipt = await failure_of("hang", SHORT)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "first_chunk_timeout")
    assert receipt.sent_at
    assert receipt.http_status is None


async def test_cut_before_the_headers() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.cut()

    receipt = await failure_of(script)
    assert (receipt.outcome, receipt.code, receipt.http_status) == (
        CallOutcome.UNKNOWN,
        "connection_cut",
        None,
    )


async def test_cut_in_the_middle_of_a_chunk() -> None:
    receipt = await failure_of("cut")
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "connection_cut")
    assert receipt.cost_is_lower_bound


async def test_a_clean_end_without_a_marker_is_not_success() -> None:
    receipt = await failure_of("no-end", text="half a story")
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "no_terminal_marker")


async def test_pings_are_no_content() -> None:
    receipt = await failure_of("ping", SHORT)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "first_chunk_timeout")


async def test_pings_after_content_are_silence() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("x")
        while not exchange.request.gone.is_set():
            await exchange.raw(b": ping\n\n")
            await anyio.sleep(0.02)

    receipt = await failure_of(script, SHORT, text="x")
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "silence_timeout")


def test_the_watch_bites_under_uvloop() -> None:
    """uvloop shows sockets that refuse `shutdown`; the worker runs on it."""
    receipt = uvloop.run(failure_of("ping", SHORT))
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "first_chunk_timeout")


async def test_our_own_slowness_is_not_the_providers_silence() -> None:
    """A run may wait for its database longer than a provider may be silent."""
    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = stepping("one", "two", "three")
        fake.release(4)
        async with aclosing(provider(fake, SHORT).call("m", PROMPT, receipt)) as pieces:
            async for _ in pieces:
                await anyio.sleep(SHORT.silence_s * 1.5)
    assert receipt.outcome is CallOutcome.SUCCEEDED


async def test_silence_counts_again_after_our_own_slowness() -> None:
    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = stepping("one", "two")
        fake.release()
        with pytest.raises(CallFailed):
            await linger(provider(fake, SHORT), receipt)
    assert receipt.code == "silence_timeout"


async def linger(chat: OpenAIChat, receipt: Receipt) -> None:
    async with aclosing(chat.call("m", PROMPT, receipt)) as pieces:
        async for _ in pieces:
            await anyio.sleep(SHORT.silence_s * 1.5)


async def test_what_came_before_a_malformed_frame_is_kept() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.raw(b'data: {"choices":[{"delta":{"content":"so far"}}]}\n\ndata: {no\n\n')
        await exchange.hang()

    receipt = await failure_of(script, text="so far")
    assert receipt.code == "malformed_frame"


async def test_done_without_its_blank_line() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("all")
        await exchange.raw(b"data: [DONE]")
        await exchange.end()

    assert (await text_of(script))[0] == "all"


async def test_a_stream_that_never_ends_meets_the_total_limit() -> None:
    limits = TimeLimits(total_s=0.3)
    receipt = await failure_of("slow", limits)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "total_timeout")


@pytest.mark.parametrize(
    ("error", "error_class", "code"),
    [
        ({"code": "server_error"}, ErrorClass.TRANSIENT, "server_error"),
        ({"type": "overloaded_error"}, ErrorClass.TRANSIENT, "overloaded_error"),
        ({"code": "rate_limit_exceeded"}, ErrorClass.TRANSIENT, "rate_limit_exceeded"),
        ({"code": 502, "message": "x"}, ErrorClass.TRANSIENT, "http_502"),
        ({"code": 403, "message": "x"}, ErrorClass.PERMANENT, "http_403"),
        ({"code": "invalid_prompt"}, ErrorClass.PERMANENT, "invalid_prompt"),
        ({"code": "image_too_small"}, ErrorClass.PERMANENT, "image_too_small"),
        ({"code": "insufficient_quota"}, ErrorClass.PERMANENT, "insufficient_quota"),
        ({"code": "content_filter"}, ErrorClass.REFUSED, "content_filter"),
        ("went wrong", ErrorClass.TRANSIENT, "provider_error"),
    ],
)
async def test_an_error_in_the_stream(error: object, error_class: ErrorClass, code: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("so ")
        await exchange.frame({"error": error, "choices": []})
        await exchange.done()

    receipt = await failure_of(script, text="so ")
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, error_class)
    assert (receipt.code, receipt.cost_usd) == (code, None)


async def test_200_with_a_json_error() -> None:
    receipt = await failure_of("json-error")
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, ErrorClass.TRANSIENT)
    assert (receipt.code, receipt.cost_usd) == ("server_error", None)


async def test_200_with_something_else() -> None:
    receipt = await failure_of(answering(200, b"<html>login</html>", content_type="text/html"))
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "not_a_stream")


@pytest.mark.parametrize(
    ("reason", "error_class"),
    [
        ("content_filter", ErrorClass.REFUSED),
        ("insufficient_system_resource", ErrorClass.TRANSIENT),
        ("error", ErrorClass.TRANSIENT),
    ],
)
async def test_finished_for_a_bad_reason(reason: str, error_class: ErrorClass) -> None:
    receipt = await failure_of(streaming("no", reason=reason))
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, error_class)
    assert (receipt.code, receipt.finish_reason, receipt.output_tokens) == (reason, reason, 5)


async def test_a_refusal_beside_the_content() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.delta(content=None, refusal="I can't")
        await exchange.finish()
        await exchange.done()

    receipt = await failure_of(script)
    assert (receipt.error_class, receipt.code) == (ErrorClass.REFUSED, "refusal")


async def test_length_is_a_truncated_success() -> None:
    text, receipt = await text_of(streaming("cut sho", reason="length"))
    assert (text, receipt.truncated, receipt.finish_reason) == ("cut sho", True, "length")


@pytest.mark.parametrize("frame", [b"data: {nope\n\n", b"data: [1]\n\n", b"data: " + b"[" * 100_000 + b"\n\n"])
async def test_a_malformed_frame(frame: bytes) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.raw(frame)
        await exchange.hang()

    receipt = await failure_of(script)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "malformed_frame")


async def test_a_frame_beyond_the_cap() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("x" * 9_000_000)
        await exchange.hang()

    receipt = await failure_of(script)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "frame_too_large")


async def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_call, "MAX_ANSWER_CHARS", 100)

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for _ in range(3):
            await exchange.text("x" * 40)
        await exchange.hang()

    receipt = await failure_of(script)
    assert (receipt.outcome, receipt.code) == (CallOutcome.UNKNOWN, "answer_too_large")
    assert receipt.sent_at is not None


async def test_done_without_a_finish_reason() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("Ollama")
        await exchange.finish(None)
        await exchange.done()

    text, receipt = await text_of(script)
    assert (text, receipt.finish_reason) == ("Ollama", None)


@pytest.mark.parametrize("how", ["clean", "cut"])
async def test_a_finish_reason_without_done(how: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("whole")
        await exchange.finish()
        await exchange.usage()
        await (exchange.end() if how == "clean" else exchange.cut())

    text, receipt = await text_of(script)
    assert (text, receipt.finish_reason) == ("whole", "stop")


async def test_a_server_that_stays_open_after_the_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.providers.watchdog.FINISH_GRACE_S", 0.05)

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.text("whole")
        await exchange.finish()
        await exchange.hang()

    text, receipt = await text_of(script)
    assert (text, receipt.usage_source) == ("whole", None)


async def test_split_utf8_and_crlf_lines() -> None:
    frame = 'data: {"choices":[{"delta":{"content":"ж😀\u2028"}}]}\r\n\r\n'.encode()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for byte in frame:
            await exchange.raw(bytes([byte]))
        await exchange.raw(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\n\r')
        await exchange.raw(b"\ndata: [DONE]\r\n\r\n")
        await exchange.end()

    assert (await text_of(script))[0] == "ж😀\u2028"


async def test_a_line_of_3_mb() -> None:
    text, _ = await text_of(streaming("y" * 3_000_000))
    assert len(text) == 3_000_000


async def test_a_pair_split_over_two_deltas_is_joined() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for text in ("a\\ud83d", "\\ude00b", "\\ud83d", "c", "\\ud83d"):
            await exchange.raw(b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % text.encode())
        await exchange.finish()
        await exchange.done()

    assert (await text_of(script))[0] == "a😀b\ud83dc\ud83d"


async def test_channels_are_beside_the_text() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.delta(reasoning_content="hm", content=None)
        await exchange.delta(reasoning="m", content="")
        await exchange.delta(content="yes")
        await exchange.delta(tool_calls=[{"index": 0, "id": "t1", "function": {"name": "f", "arguments": "{"}}])
        await exchange.delta(tool_calls=[{"index": 0, "function": {"arguments": "}"}}])
        await exchange.delta(content=[{"type": "text", "text": "!"}])
        await exchange.finish()
        await exchange.done()

    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = script
        pieces = await collect(provider(fake), "m", receipt)
    assert pieces == [
        Piece("hm", "reasoning"),
        Piece("m", "reasoning"),
        Piece("yes"),
        Piece("{", "tool:t1"),
        Piece("}", "tool:t1"),
        Piece("!"),
    ]


@pytest.mark.parametrize("cost", ["0.00042", 0.00042, {"total_cost": 0.00042}])
async def test_the_providers_own_cost_comes_first(cost: object) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.finish()
        await exchange.usage(cost=cost)
        await exchange.done()

    _, receipt = await text_of(script)
    assert (receipt.cost_usd, receipt.cost_source) == (Decimal("0.00042"), "provider")


@pytest.mark.parametrize("cost", ["1e-20000", "0." + "1" * 20_000, "999999.9999999999", 1e300, "NaN", "-1"])
async def test_any_cost_can_be_written_down(cost: object) -> None:
    """What the ledger's numeric(18, 9) cannot hold, or the driver not encode, ended a job whose answer was there."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.finish()
        await exchange.usage(cost=cost)
        await exchange.done()

    _, receipt = await text_of(script)
    if receipt.cost_usd is not None:
        assert 0 <= receipt.cost_usd <= 1_000_000
        assert receipt.cost_usd.as_tuple().exponent == -9


async def test_a_lie_about_tokens_has_no_price() -> None:
    receipt, price = Receipt(), TokenPrice(Decimal(10), Decimal(10))
    settle(receipt, Usage(2**52, 2**52, None, None), "m", "http://127.0.0.1/v1", price)
    assert (receipt.cost_usd, receipt.input_tokens) == (None, 2**52)


async def test_the_files_price_makes_a_local_cost() -> None:
    async with FakeProvider() as fake:
        settings = ProviderSettings("fake", "openai_chat", base_url=fake.base_url, models=("normal",))
        settings = replace(settings, price=TokenPrice(Decimal("0.5"), Decimal(2)))
        receipt = Receipt()
        await collect(OpenAIChat(settings), None, receipt)
    assert (receipt.cost_usd, receipt.cost_source) == (Decimal("0.000016"), "local")


async def test_usage_of_a_lost_call_is_a_lower_bound() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.usage(cost=0.5)
        await exchange.end()

    receipt = await failure_of(script)
    assert (receipt.cost_usd, receipt.cost_is_lower_bound) == (Decimal("0.5"), True)


async def test_cancelling_closes_the_socket() -> None:
    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = stepping("one", "two")
        fake.release()
        with anyio.CancelScope() as scope:
            async with aclosing(provider(fake).call("m", PROMPT, receipt)) as pieces:
                async for _ in pieces:
                    scope.cancel()
        assert scope.cancelled_caught
        await fake.requests[0].gone.wait()
        assert not fake.requests[0].answered.is_set()
    assert (receipt.outcome, receipt.cost_usd) == (CallOutcome.CANCEL_UNCONFIRMED, None)
    assert receipt.cost_is_lower_bound


async def test_closing_the_iterator_is_a_cancel() -> None:
    receipt = Receipt()
    async with FakeProvider() as fake:
        fake.scripts["m"] = stepping("one", "two")
        fake.release()
        async with aclosing(provider(fake).call("m", PROMPT, receipt)) as pieces:
            assert await anext(pieces) == Piece("one")
        await fake.requests[0].gone.wait()
    assert receipt.outcome is CallOutcome.CANCEL_UNCONFIRMED


async def test_cancelling_before_anything_was_sent() -> None:
    receipt = Receipt()
    settings = ProviderSettings("far", "openai_chat", base_url="http://127.0.0.1:9", models=("m",))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await collect(OpenAIChat(settings), "m", receipt)
    assert scope.cancelled_caught
    assert (receipt.outcome, receipt.cost_usd) == (CallOutcome.CANCELLED, Decimal(0))


async def test_every_call_has_a_connection_of_its_own() -> None:
    async with FakeProvider() as fake:
        chat = provider(fake)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(collect, chat, None, Receipt())
        assert len(fake.requests) == 5
