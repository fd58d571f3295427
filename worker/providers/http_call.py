"""One request to a provider over HTTP, and the events of its answer.

One call is one connection and one request: no pool, no retry, no redirect. A re-used connection that the server has
just closed looks like a cut after sending, which is an `unknown` nobody needs.

    sent?      httpx2's trace says when the last byte of the request left
    alive?     the watchdog counts content, never pings
    complete?  that is for the reader of the wire format to say
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

import httpx2
import orjson

from worker.providers import outcomes
from worker.providers.frames import FrameReader, FrameTooLargeError
from worker.providers.provider import CallFailed, ErrorClass, Piece, Receipt
from worker.providers.settings import ProviderSettings
from worker.providers.watchdog import OutOfTimeError, Watchdog

MAX_ERROR_BODY_BYTES = 64 * 1024  # an error object is under 2 KiB; HTML pages of proxies are not read whole
MAX_OBJECT_BYTES = 64 * 1024 * 1024  # a whole answer as one object, at most what its text may be as JSON
MAX_REQUEST_ID_CHARS = 128
# Some 2,000,000 tokens, many times what a model may say; a stream without end would fill the worker's memory.
MAX_ANSWER_CHARS = 8 * 1024 * 1024

# By the first one OpenRouter can be asked afterwards.
_REQUEST_ID_HEADERS = ("x-generation-id", "x-request-id", "request-id")


def silence_transport() -> None:
    """It writes the headers of answers, in which providers say keys back; what matters of a call is in the ledger."""
    for name in ("httpcore2", "httpx2"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class AnswerTooLargeError(Exception):
    """An answer passed `MAX_ANSWER_CHARS`, and nobody waits for more."""


_LOST = (httpx2.RequestError, OutOfTimeError, FrameTooLargeError, AnswerTooLargeError)


class WireReader(Protocol):
    """Reads the events of one wire format; pure."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to read."""
        ...

    @property
    def is_finishing(self) -> bool:
        """Whether the answer is complete and only a word about it may follow."""
        ...

    def feed(self, frames: list[bytes]) -> list[Piece]:
        """The pieces in the data of some events."""
        ...

    def rest(self) -> list[Piece]:
        """What still waited for its second half when the stream ended."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: `path` goes behind the provider's base_url, `body` is JSON; None = no body."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Server:
    """Where the requests of one provider go, and with what headers."""

    def __init__(self, settings: ProviderSettings, headers: Mapping[str, str]) -> None:
        self._settings = settings
        self._headers = headers
        self._tls: ssl.SSLContext | None = None

    @property
    def secret(self) -> str | None:
        """What a provider may say back to us, and nobody else may hear."""
        return self._settings.api_key

    def stream(self, asked: Asked, receipt: Receipt) -> HttpCall:
        """A request whose answer is a stream of events, to be noted on the receipt."""
        return HttpCall(self, asked, receipt, Watchdog(self._settings.limits))

    async def ask(self, asked: Asked) -> tuple[int, Any]:
        """(status, JSON) of a request whose answer is one object; (0, None) where there was none in time."""
        watch = Watchdog(self._settings.limits)
        try:
            async with self.opened(asked, watch, {}) as response:
                return response.status_code, await _json(response, watch, MAX_OBJECT_BYTES)
        except _LOST:
            return 0, None

    @asynccontextmanager
    async def opened(
        self, asked: Asked, watch: Watchdog, extensions: dict[str, Any]
    ) -> AsyncIterator[httpx2.Response]:
        """The answer's head, on a connection of its own."""
        async with self._client() as client:
            request = client.build_request(
                asked.method,
                f"{self._settings.base_url}{asked.path}",
                content=None if asked.body is None else orjson.dumps(asked.body),
                headers={"Accept-Encoding": "identity", "User-Agent": "outlive", **self._headers, **asked.headers},
                extensions=extensions,
            )
            response = await watch.wait(client.send(request, stream=True))
            try:
                yield response
            finally:
                await response.aclose()

    def _client(self) -> httpx2.AsyncClient:
        # Reading the certificates takes 20 ms of the event loop: once per provider, not per call.
        self._tls = self._tls or httpx2.create_ssl_context()
        timeout = httpx2.Timeout(None, connect=self._settings.limits.connect_s)
        return httpx2.AsyncClient(verify=self._tls, timeout=timeout, follow_redirects=False)


class HttpCall:
    """A request whose answer is a stream of events. `lost` is the code for one that did not say how it ended."""

    def __init__(self, server: Server, asked: Asked, receipt: Receipt, watch: Watchdog) -> None:
        self._server = server
        self._asked = asked
        self._receipt = receipt
        self._watch = watch
        receipt.secret = server.secret
        self.lost = "no_terminal_marker"

    async def pieces(self, reader: WireReader) -> AsyncGenerator[list[Piece]]:
        """The pieces of each read, until the stream is done, broken or at its end; see `lost` then.

        Raises `CallFailed` for an answer that is not a stream of events.
        """
        try:
            extensions = {"trace": _Sent(self._receipt, self._asked.method)}
            async with self._server.opened(self._asked, self._watch, extensions) as response:
                _note_answer(response, self._receipt)
                await _turn_away(response, self._receipt, self._watch)
                async with aclosing(_batches(response, reader, self._watch)) as batches:
                    async for pieces in batches:
                        if self._receipt.first_chunk_at is None and any(piece.text for piece in pieces):
                            self._receipt.mark_first_chunk()
                        if pieces:
                            yield pieces
            self.lost = self._watch.expired or self.lost
        except _LOST as error:
            self.lost = self._watch.expired or _lost_code(error)


class _Sent:
    """httpx2's trace callback: notes when the whole request has left (a proxy's CONNECT is not it)."""

    def __init__(self, receipt: Receipt, method: str) -> None:
        self._receipt = receipt
        self._method = method.encode()
        self._is_ours = False

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        if event == "http11.send_request_body.started":
            self._is_ours = info["request"].method == self._method
        elif event == "http11.send_request_body.complete" and self._is_ours:
            self._receipt.mark_sent()


async def _batches(response: httpx2.Response, reader: WireReader, watch: Watchdog) -> AsyncGenerator[list[Piece]]:
    frames, said = FrameReader(), 0
    connection = response.extensions["network_stream"].get_extra_info("socket")
    with watch.guard(connection):
        # Nobody compresses what we asked for plain; who does so all the same is decoded, one layer more.
        plain = "content-encoding" not in response.headers
        async with aclosing(response.aiter_raw() if plain else response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                pieces = reader.feed(frames.feed(chunk))
                size = 0
                for piece in pieces:
                    size += len(piece.text)
                said += size
                if said > MAX_ANSWER_CHARS:
                    raise AnswerTooLargeError
                if size:
                    watch.hold()
                if pieces:
                    yield pieces
                if size:
                    watch.content()
                if reader.ended:
                    break
                if reader.is_finishing:
                    watch.finishing()
    yield reader.feed(frames.rest()) + reader.rest()


async def _turn_away(response: httpx2.Response, receipt: Receipt, watch: Watchdog) -> None:
    """Raises `CallFailed` for an answer that is not a stream of events."""
    status = response.status_code
    if not response.is_success:
        error = outcomes.error_of(await _json(response, watch))
        error_class, code = outcomes.for_status(status, error)
        if status in outcomes.UNBILLED_STATUS:
            receipt.price(Decimal(0), "local")
        raise verdict(receipt, error_class, code)
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
        error = outcomes.error_of(await _json(response, watch))
        if not error:
            raise receipt.lose("not_a_stream")
        raise verdict(receipt, *outcomes.for_error(error))


def verdict(receipt: Receipt, error_class: ErrorClass, code: str) -> CallFailed:
    """Closes the receipt by the class of an error."""
    return receipt.lose(code) if error_class is ErrorClass.UNKNOWN else receipt.fail(error_class, code)


def unfinished(receipt: Receipt, code: str) -> CallFailed:
    """Closes the receipt of a call that never said how it ended."""
    if receipt.sent_at is not None or receipt.http_status is not None:
        return receipt.lose(code)
    # Without its last byte the JSON cannot be parsed: the provider did nothing and bills nothing.
    receipt.price(Decimal(0), "local")
    return receipt.fail(ErrorClass.TRANSIENT, code)


async def _json(response: httpx2.Response, watch: Watchdog, most_bytes: int = MAX_ERROR_BODY_BYTES) -> Any:
    """The JSON of a small answer; None where there is none. The status alone must do then."""
    try:
        return orjson.loads(await watch.wait(_read_some(response, most_bytes)))
    except (httpx2.RequestError, OutOfTimeError, ValueError):
        return None


async def _read_some(response: httpx2.Response, most_bytes: int) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > most_bytes:
            break
    return bytes(body)


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
