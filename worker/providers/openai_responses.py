"""OpenAI's Responses in background mode: a generation that goes on when nobody listens.

call      POST /responses with background and stream; the first event has the generation's id
resume    GET /responses/{id}?stream=true&starting_after=n: the same generation, from any event on
stop      POST /responses/{id}/cancel, when nobody wants it any more; says what it came to
look_up   GET /responses/{id}, once: what became of it, and its usage
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote, urlencode

from worker.providers import outcomes, prices
from worker.providers.http_call import Asked, HttpCall, unfinished, verdict
from worker.providers.model_provider import ModelProvider, each_piece
from worker.providers.openai_chat import headers, key_header
from worker.providers.provider import (
    LEFT_RUNNING,
    CallFailed,
    CallIds,
    CallOutcome,
    ErrorClass,
    Piece,
    Place,
    Prompt,
    Receipt,
)
from worker.providers.response_request import response_body
from worker.providers.response_stream import ResponseStream
from worker.providers.settings import ProviderSettings

_GONE_STATUS = frozenset({404, 410})


class OpenAIResponses(ModelProvider):
    """A provider of type `openai_responses`; see docs/providers.md. It can be reattached to and asked afterwards."""

    can_look_up = True

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings, headers(settings))

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """One request; see `Provider.call`. `model` None takes the first one configured."""
        chosen = self._chosen(model, receipt)
        key = key_header(self._settings, prompt)
        http = self._server.stream(Asked("POST", "/responses", response_body(chosen, prompt), key), receipt)
        async with aclosing(self._follow(http, chosen, receipt)) as pieces:
            async for piece in pieces:
                yield piece

    async def resume(self, model: str | None, at: Place, receipt: Receipt) -> AsyncGenerator[Piece]:
        """Go on with a generation; see `Reattachable.resume`."""
        receipt.resume_id = at.resume_id
        # The generation has begun, whatever becomes of this request.
        receipt.mark_sent()
        wish = {"stream": "true"} | ({"starting_after": at.cursor} if at.cursor is not None else {})
        http = self._server.stream(Asked("GET", f"{_path(at.resume_id)}?{urlencode(wish)}"), receipt)
        try:
            async with aclosing(self._follow(http, self._chosen(model, receipt), receipt)) as pieces:
                async for piece in pieces:
                    yield piece
        except CallFailed:
            if (receipt.http_status or 200) < 400:
                raise
            raise _turned_away(receipt) from None

    async def _follow(self, http: HttpCall, model: str, receipt: Receipt) -> AsyncGenerator[Piece]:
        stream = ResponseStream()
        try:
            async with aclosing(each_piece(http, stream)) as pieces:
                async for piece in pieces:
                    receipt.resume_id = receipt.resume_id or stream.resumable_id
                    yield piece
            self._note(stream, model, receipt)
            failure = _failure(stream, receipt, http.lost)
            if failure is not None:
                raise failure
        finally:
            receipt.abandon()

    async def stop(self, model: str | None, receipt: Receipt) -> None:
        """End the generation; see `Reattachable.stop`. Where nobody answers, whether it goes on is not known."""
        assert receipt.resume_id is not None
        status, response = await self._server.ask(Asked("POST", f"{_path(receipt.resume_id)}/cancel", {}))
        if status >= 400:
            # One that was over already cannot be cancelled: the guide says that it can, the server answered 400.
            status, response = await self._server.ask(Asked("GET", _path(receipt.resume_id)))
        receipt.reopen()
        if status != 200 or not isinstance(response, dict) or not self._read(response, model, receipt):
            receipt.outcome, receipt.cost_is_lower_bound = CallOutcome.CANCEL_UNCONFIRMED, True
        if receipt.outcome is CallOutcome.CANCELLED:
            receipt.error_class = receipt.code = None

    async def look_up(self, model: str | None, ids: CallIds) -> Receipt | None:
        """What became of a generation; see `Resolvable.look_up`."""
        if ids.resume_id is None:
            return None
        status, response = await self._server.ask(Asked("GET", _path(ids.resume_id)))
        receipt = Receipt(resume_id=ids.resume_id)
        receipt.mark_sent()
        is_over = status == 200 and isinstance(response, dict) and self._read(response, model, receipt)
        return receipt if is_over else None

    def _read(self, response: dict[str, object], model: str | None, receipt: Receipt) -> bool:
        """Close the receipt by a response object; False where its generation goes on."""
        stream = ResponseStream()
        stream.response(response)
        if not stream.complete:
            return False
        self._note(stream, self._chosen(model, receipt), receipt)
        _failure(stream, receipt, "")
        return True

    def _note(self, stream: ResponseStream, model: str, receipt: Receipt) -> None:
        receipt.finish_reason = stream.incomplete_reason or stream.status
        if stream.usage is not None:
            self._settle(prices.Usage.of_response(stream.usage), model, receipt)


def _path(resume_id: str) -> str:
    return f"/responses/{quote(resume_id, safe='')}"


def _failure(stream: ResponseStream, receipt: Receipt, lost: str) -> CallFailed | None:
    """Closes the receipt by what was said; the error to raise, or None for a success."""
    if stream.error is not None:
        return verdict(receipt, *outcomes.for_error(stream.error))
    match stream.status:
        case None:
            return unfinished(receipt, "malformed_frame" if stream.malformed else lost)
        case "cancelled":
            # By somebody at the provider, or by us: not of the generation's own doing.
            failure = receipt.fail(ErrorClass.PERMANENT, "cancelled_there")
            receipt.outcome = CallOutcome.CANCELLED
            return failure
        case "failed":
            return receipt.fail(ErrorClass.TRANSIENT, "provider_error")
        case "incomplete" if stream.incomplete_reason == "content_filter":
            return receipt.fail(ErrorClass.REFUSED, "content_filter")
    if stream.refused:
        return receipt.fail(ErrorClass.REFUSED, "refusal")
    receipt.outcome = CallOutcome.SUCCEEDED
    receipt.truncated = stream.status == "incomplete"
    return None


def _turned_away(receipt: Receipt) -> CallFailed:
    """A generation that could not be gone on with, which is not to say that it failed."""
    code = receipt.code or LEFT_RUNNING
    if receipt.http_status in _GONE_STATUS:
        # Kept for ten minutes or so, and then nobody can say any more.
        receipt.resume_id, code = None, "generation_gone"
    receipt.reopen()
    return receipt.lose(code)
