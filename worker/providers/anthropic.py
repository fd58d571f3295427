"""Anthropic's messages.

Only `message_stop` or a stop reason is an end; a clean end of the stream without one is `unknown`. There is no
reattaching and no asking afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from worker.providers import outcomes, prices
from worker.providers.http_call import Asked, unfinished, verdict
from worker.providers.message_request import message_body
from worker.providers.message_stream import MessageStream
from worker.providers.model_provider import ModelProvider, each_piece
from worker.providers.provider import CallFailed, CallOutcome, ErrorClass, Piece, Prompt, Receipt
from worker.providers.settings import ProviderSettings

# What the API is fixed at; a newer one says itself what has changed.
VERSION = "2023-06-01"

# `pause_turn` is a long turn that could be gone on with; what was said so far is its answer here.
_TRUNCATED = frozenset({"max_tokens", "model_context_window_exceeded", "pause_turn"})


class Anthropic(ModelProvider):
    """A provider of type `anthropic`; see docs/providers.md."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings, _headers(settings))

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """One request; see `Provider.call`. `model` None takes the first one configured."""
        model = self._chosen(model, receipt)
        stream = MessageStream()
        body = message_body(model, prompt, self._settings.max_output_tokens)
        http = self._server.stream(Asked("POST", "/messages", body), receipt)
        try:
            async with aclosing(each_piece(http, stream)) as pieces:
                async for piece in pieces:
                    yield piece
            self._conclude(model, stream, receipt, http.lost)
        finally:
            receipt.abandon()

    def _conclude(self, model: str, stream: MessageStream, receipt: Receipt, lost: str) -> None:
        """Closes the receipt by what the stream said; raises `CallFailed` unless it was a success."""
        # What was written so far comes with the last event; without it the first one says 1, which is no count.
        if stream.stop_reason is not None:
            usage = prices.Usage.of_message(stream.usage)
            self._settle(usage, model, receipt)
        receipt.finish_reason = stream.stop_reason
        failure = _failure(stream, receipt, lost)
        if failure is not None:
            raise failure from None
        receipt.outcome = CallOutcome.SUCCEEDED
        receipt.truncated = stream.stop_reason in _TRUNCATED


def _headers(settings: ProviderSettings) -> dict[str, str]:
    version = {"anthropic-version": VERSION}
    return version if settings.api_key is None else version | {"x-api-key": settings.api_key}


def _failure(stream: MessageStream, receipt: Receipt, lost: str) -> CallFailed | None:
    if stream.error is not None:
        return verdict(receipt, *outcomes.for_error(stream.error))
    if not stream.complete:
        return unfinished(receipt, "malformed_frame" if stream.malformed else lost)
    return receipt.fail(ErrorClass.REFUSED, "refusal") if stream.stop_reason == "refusal" else None
