"""Any endpoint that speaks OpenAI's streaming chat completions.

Only [DONE] or a finish reason is an end; a clean end of the stream without one is `unknown`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import urlencode

from worker.providers import outcomes, prices
from worker.providers.chat_request import request_body
from worker.providers.chat_stream import ChatStream
from worker.providers.generation import generation_receipt
from worker.providers.http_call import Asked, unfinished, verdict
from worker.providers.model_provider import ModelProvider, each_piece
from worker.providers.profile import profile_for
from worker.providers.provider import (
    CallFailed,
    CallIds,
    CallOutcome,
    ErrorClass,
    Piece,
    Prompt,
    Receipt,
)
from worker.providers.settings import ProviderSettings

_TRUNCATED = frozenset({"length", "max_tokens", "model_length"})
_UNFINISHED = {
    "content_filter": ErrorClass.REFUSED,
    "insufficient_system_resource": ErrorClass.TRANSIENT,  # DeepSeek: it ran out in mid-answer
    "error": ErrorClass.TRANSIENT,  # OpenRouter, when its error object got lost
}


class OpenAIChat(ModelProvider):
    """A provider of type `openai_chat`; see docs/providers.md."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings, headers(settings))
        self._profile = settings.profile or profile_for(settings.base_url)

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """One request; see `Provider.call`. `model` None takes the first one configured."""
        model = self._chosen(model, receipt)
        stream = ChatStream(needs_reason=self._profile.needs_reason)
        body = request_body(model, prompt, self._profile.limit_field)
        asked = Asked("POST", "/chat/completions", body, key_header(self._settings, prompt))
        http = self._server.stream(asked, receipt)
        try:
            async with aclosing(each_piece(http, stream)) as pieces:
                async for piece in pieces:
                    yield piece
            self._conclude(model, stream, receipt, http.lost)
        finally:
            receipt.abandon(stops=self._profile.stops_when_closed is True)

    @property
    def can_look_up(self) -> bool:
        """Whether this server tells afterwards what a call cost."""
        return self._profile.tells_cost

    async def look_up(self, model: str | None, ids: CallIds) -> Receipt | None:
        """What a generation came to, by OpenRouter's word; see `Resolvable.look_up`."""
        if not self.can_look_up or ids.request_id is None:
            return None
        status, body = await self._server.ask(Asked("GET", f"/generation?{urlencode({'id': ids.request_id})}"))
        # 404 for a moment after its end, too.
        found = body.get("data") if status == 200 and isinstance(body, dict) else None
        return generation_receipt(found) if isinstance(found, dict) else None

    def _conclude(self, model: str, stream: ChatStream, receipt: Receipt, lost: str) -> None:
        """Closes the receipt by what the stream said; raises `CallFailed` unless it was a success."""
        if stream.usage is not None:
            usage = prices.Usage.of_chat(stream.usage)
            self._settle(usage, model, receipt)
        receipt.finish_reason = stream.finish_reason
        failure = _failure(stream, receipt, lost)
        if failure is not None:
            raise failure from None
        receipt.outcome = CallOutcome.SUCCEEDED
        receipt.truncated = stream.finish_reason in _TRUNCATED


def key_header(settings: ProviderSettings, prompt: Prompt) -> dict[str, str]:
    """The step's key, where the endpoint is declared to deduplicate by one: the same in every attempt."""
    if settings.idempotency_header is None or prompt.step_key is None:
        return {}
    return {settings.idempotency_header: prompt.step_key}


def headers(settings: ProviderSettings) -> dict[str, str]:
    """What every OpenAI endpoint wants."""
    return {} if settings.api_key is None else {"Authorization": f"Bearer {settings.api_key}"}


def _failure(stream: ChatStream, receipt: Receipt, lost: str) -> CallFailed | None:
    if stream.error is not None:
        return verdict(receipt, *outcomes.for_error(stream.error))
    if not stream.complete:
        return unfinished(receipt, "malformed_frame" if stream.malformed else lost)
    reason = stream.finish_reason or ""
    if stream.refused:
        return receipt.fail(ErrorClass.REFUSED, "refusal")
    return receipt.fail(_UNFINISHED[reason], reason) if reason in _UNFINISHED else None
