"""Any endpoint that speaks OpenAI's streaming chat completions.

One call is one connection and one POST: no pool, no retry, no redirect. A re-used connection that
the server has just closed looks like a cut after sending, which is an `unknown` nobody needs.

    sent?      httpx2's trace says when the last byte of the request left
    alive?     the watchdog counts content, never pings
    complete?  only [DONE] or a finish reason; a clean end without one is `unknown`
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx2
import orjson

from worker.providers import outcomes, prices
from worker.providers.chat_request import request_body
from worker.providers.chat_stream import ChatStream
from worker.providers.frames import FrameReader, FrameTooLargeError
from worker.providers.provider import CallFailed, CallOutcome, ErrorClass, Piece, Prompt, Receipt, TokenPrice
from worker.providers.settings import ProviderSettings
from worker.providers.watchdog import OutOfTimeError, Watchdog

MAX_ERROR_BODY_BYTES = 64 * 1024  # an error object is under 2 KiB; HTML pages of proxies are not read whole
MAX_REQUEST_ID_CHARS = 128
# Some 2,000,000 tokens, many times what a model may say; a stream without end would fill the worker's memory.
MAX_ANSWER_CHARS = 8 * 1024 * 1024

_REQUEST_ID_HEADERS = ("x-request-id", "x-generation-id", "request-id")
_TRUNCATED = frozenset({"length", "max_tokens", "model_length"})
_UNFINISHED = {
    "content_filter": ErrorClass.REFUSED,
    "insufficient_system_resource": ErrorClass.TRANSIENT,  # DeepSeek: it ran out in mid-answer
    "error": ErrorClass.TRANSIENT,  # OpenRouter, when its error object got lost
}


class AnswerTooLargeError(Exception):
    """An answer passed `MAX_ANSWER_CHARS`, and nobody waits for more."""


_LOST = (httpx2.RequestError, OutOfTimeError, FrameTooLargeError, AnswerTooLargeError)


class OpenAIChat:
    """A provider of type `openai_chat`; see docs/providers.md."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings
        self._tls: ssl.SSLContext | None = None

    @property
    def name(self) -> str:
        return self._settings.name

    def price(self, model: str | None) -> TokenPrice | None:
        """The providers file's, else what is listed for the address."""
        return self._settings.price or (prices.listed_price(model, self._settings.base_url) if model else None)

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """One request; see `Provider.call`. `model` None takes the first one configured."""
        model = model or next(iter(self._settings.models), None)
        if model is None:
            raise receipt.fail(ErrorClass.PERMANENT, "no_model")
        stream = ChatStream()
        watch = Watchdog(self._settings.limits)
        try:
            async with self._response(model, prompt, receipt, watch) as response:
                await _turn_away(response, receipt, watch)
                async with aclosing(_batches(response, stream, watch)) as batches:
                    async for pieces in batches:
                        if pieces:
                            receipt.mark_first_chunk()
                        for piece in pieces:
                            yield piece
            self._conclude(model, stream, receipt, watch.expired or "no_terminal_marker")
        except _LOST as error:
            self._conclude(model, stream, receipt, watch.expired or _lost_code(error))
        finally:
            receipt.abandon()

    @asynccontextmanager
    async def _response(
        self, model: str, prompt: Prompt, receipt: Receipt, watch: Watchdog
    ) -> AsyncIterator[httpx2.Response]:
        async with self._client() as client:
            request = client.build_request(
                "POST",
                f"{self._settings.base_url}/chat/completions",
                content=orjson.dumps(request_body(model, prompt, self._settings.base_url)),
                headers=self._headers(),
                extensions={"trace": _Sent(receipt)},
            )
            response = await watch.wait(client.send(request, stream=True))
            try:
                _note_answer(response, receipt)
                yield response
            finally:
                await response.aclose()

    def _client(self) -> httpx2.AsyncClient:
        # Reading the certificates takes 20 ms of the event loop: once per provider, not per call.
        self._tls = self._tls or httpx2.create_ssl_context()
        timeout = httpx2.Timeout(None, connect=self._settings.limits.connect_s)
        return httpx2.AsyncClient(verify=self._tls, timeout=timeout, follow_redirects=False)

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # compressed streams arrive in lumps
            "Content-Type": "application/json",
            "User-Agent": "outlive",
        }
        if self._settings.api_key is not None:
            headers["Authorization"] = f"Bearer {self._settings.api_key}"
        return headers

    def _conclude(self, model: str, stream: ChatStream, receipt: Receipt, lost: str) -> None:
        """Closes the receipt by what the stream said; raises `CallFailed` unless it was a success.

        `lost` is the code for a stream that never said how it ended.
        """
        if stream.usage is not None:
            usage = prices.Usage.read(stream.usage)
            prices.settle(receipt, usage, model, self._settings.base_url, self._settings.price)
        receipt.finish_reason = stream.finish_reason
        failure = _failure(stream, receipt, lost)
        if failure is not None:
            raise failure from None
        receipt.outcome = CallOutcome.SUCCEEDED
        receipt.truncated = stream.finish_reason in _TRUNCATED


class _Sent:
    """httpx2's trace callback: notes when the whole POST has left (a proxy's CONNECT is not it)."""

    def __init__(self, receipt: Receipt) -> None:
        self._receipt = receipt
        self._is_post = False

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        if event == "http11.send_request_body.started":
            self._is_post = info["request"].method == b"POST"
        elif event == "http11.send_request_body.complete" and self._is_post:
            self._receipt.mark_sent()


async def _batches(response: httpx2.Response, stream: ChatStream, watch: Watchdog) -> AsyncGenerator[list[Piece]]:
    """The pieces of each read until the stream is done, broken or at its end."""
    reader, said = FrameReader(), 0
    connection = response.extensions["network_stream"].get_extra_info("socket")
    with watch.guard(connection):
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                pieces = stream.feed(reader.feed(chunk))
                if pieces:
                    said += sum(len(piece.text) for piece in pieces)
                    if said > MAX_ANSWER_CHARS:
                        raise AnswerTooLargeError
                    watch.hold()
                    yield pieces
                    watch.content()
                if stream.ended:
                    break
                if stream.finish_reason is not None:
                    watch.finishing()
    yield stream.feed(reader.rest()) + stream.rest()


async def _turn_away(response: httpx2.Response, receipt: Receipt, watch: Watchdog) -> None:
    """Raises `CallFailed` for an answer that is not a stream of events."""
    status = response.status_code
    if not response.is_success:
        error = outcomes.error_of(await _error_body(response, watch))
        error_class, code = outcomes.for_status(status, error)
        if status in outcomes.UNBILLED_STATUS:
            receipt.price(Decimal(0), "local")
        raise _verdict(receipt, error_class, code)
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
        error = outcomes.error_of(await _error_body(response, watch))
        if not error:
            raise receipt.lose("not_a_stream")
        raise _verdict(receipt, *outcomes.for_error(error))


async def _error_body(response: httpx2.Response, watch: Watchdog) -> object:
    """The JSON of an answer that is an error; None where there is none. The status alone must do then."""
    try:
        return orjson.loads(await watch.wait(_read_some(response)))
    except (httpx2.RequestError, OutOfTimeError, ValueError):
        return None


async def _read_some(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_ERROR_BODY_BYTES:
            break
    return bytes(body)


def _failure(stream: ChatStream, receipt: Receipt, lost: str) -> CallFailed | None:
    if stream.error is not None:
        return _verdict(receipt, *outcomes.for_error(stream.error))
    if stream.complete:
        reason = stream.finish_reason or ""
        if stream.refused:
            return receipt.fail(ErrorClass.REFUSED, "refusal")
        return receipt.fail(_UNFINISHED[reason], reason) if reason in _UNFINISHED else None
    if receipt.sent_at is not None or receipt.http_status is not None:
        return receipt.lose("malformed_frame" if stream.malformed else lost)
    # Without its last byte the JSON cannot be parsed: the provider did nothing and bills nothing.
    receipt.price(Decimal(0), "local")
    return receipt.fail(ErrorClass.TRANSIENT, lost)


def _verdict(receipt: Receipt, error_class: ErrorClass, code: str) -> CallFailed:
    return receipt.lose(code) if error_class is ErrorClass.UNKNOWN else receipt.fail(error_class, code)


def _lost_code(error: Exception) -> str:
    match error:
        case OutOfTimeError():
            return error.code
        case httpx2.ConnectTimeout():
            return "connect_timeout"
        case httpx2.ConnectError() | httpx2.ProxyError() | httpx2.UnsupportedProtocol():
            return "connect_failed"
        case FrameTooLargeError():
            return "frame_too_large"
        case AnswerTooLargeError():
            return "answer_too_large"
        case _:
            return "connection_cut"


def _note_answer(response: httpx2.Response, receipt: Receipt) -> None:
    receipt.http_status = response.status_code
    receipt.retry_after_s = outcomes.retry_after_s(response.headers, datetime.now(UTC))
    given = (response.headers.get(name) for name in _REQUEST_ID_HEADERS)
    request_id = next((value for value in given if value), None)
    if request_id is not None and request_id.isascii() and request_id.isprintable():
        receipt.provider_request_id = request_id[:MAX_REQUEST_ID_CHARS]
