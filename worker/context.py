"""What a handler has of its run: the log to say things in, and the provider to call."""

from collections.abc import Callable
from contextlib import aclosing, suppress
from functools import partial
from uuid import UUID

import anyio
import anyio.lowlevel
import stamina

from schema.calls import CallEnd, close_call, open_call
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.events import Draft, EventKind
from schema.executor import Executor
from schema.json_line import json_line
from schema.runs import Lease, store_checkpoint
from schema.text import clean_json, clean_text
from worker.appender import Appender
from worker.budget import Budget, BudgetPassed, estimate_usd
from worker.external import external_event
from worker.handlers.kind import Answer, Json
from worker.log_writer import CHUNK_CHARACTERS, LeaseLost, LogWriter, WriterBroken
from worker.providers.provider import CallOutcome, Piece, Prompt, Provider, Receipt

# What a `data` event may hold, so that its line stays under 64 KiB; docs/protocol.md 4.
DATA_BYTES = 60 * 1024
# Closing the row of a call outlives a cancellation by so much; what stays open is closed as unknown with the run.
CLOSE_SECONDS = 5.0


class DataTooLarge(ValueError):
    """A `data` or `progress` value over 60 KiB of JSON; emit less, or several."""


class NoProvider(LookupError):
    """The job has no provider, so its kind cannot call one; name one when the job is created."""


class Context:
    """Implements RunContext for one run."""

    def __init__(
        self,
        database: Database,
        appender: Appender,
        writer: LogWriter,
        provider: Provider | None,
        model: str | None,
        budget: Budget,
        on_budget_passed: Callable[[], None],
        checkpoint: Json = None,
    ) -> None:
        self._database = database
        self._appender = appender
        self._writer = writer
        self._provider = provider
        self._model = model
        self._budget = budget
        self._on_budget_passed = on_budget_passed
        self._calls = 0
        self._checkpoint = checkpoint
        self.has_spent = False
        self.has_stored = False

    @property
    def _lease(self) -> Lease:
        return self._writer.lease

    @property
    def job_id(self) -> UUID:
        """Of the job."""
        return self._lease.job_id

    @property
    def attempt(self) -> int:
        """Of this run."""
        return self._lease.attempt

    async def emit(self, text: str, channel: str | None = None) -> None:
        """Add to the job's text, or to a channel beside it."""
        await self._say(Piece(clean_text(text), channel))

    async def _say(self, piece: Piece) -> None:
        if not piece.text:
            return
        if piece.channel is None:
            await self._appender.chunk(self._writer, piece.text)
            return
        for start in range(0, len(piece.text), CHUNK_CHARACTERS):
            part = piece.text[start : start + CHUNK_CHARACTERS]
            await self._event(EventKind.CHANNEL, {"text": part, "channel": clean_text(piece.channel)})

    async def emit_data(self, name: str, value: Json) -> None:
        """Add a `data` event. Raises DataTooLarge."""
        await self._event(EventKind.DATA, {"name": name, "value": value})

    async def progress(self, done: int, total: int, label: str = "") -> None:
        """Add a `progress` event."""
        await self._event(EventKind.PROGRESS, {"done": done, "total": total, "label": label})

    async def _event(self, kind: EventKind, data: dict[str, Json]) -> None:
        encoded = json_line(clean_json(data))
        if len(encoded) > DATA_BYTES:
            raise DataTooLarge
        await self._appender.event(self._writer, Draft(kind, encoded.decode()))

    @property
    def checkpoint(self) -> Json:
        """What was stored last, by this attempt or an earlier one."""
        return self._checkpoint

    async def store_checkpoint(self, value: Json) -> None:
        """Keep `value` and all that was emitted before it, in this order. Raises LeaseLost."""
        value = clean_json(value)
        # The same again after an answer that was lost changes nothing, so it may be tried until it is heard.
        async for attempt in stamina.retry_context(
            on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=None, wait_max=2.0
        ):
            with attempt:
                last_seq = await self._appender.flush(self._writer)
                if not await store_checkpoint(self._database, self._lease, last_seq, value):
                    raise LeaseLost
        self._checkpoint = value
        self.has_stored = True

    def step_key(self, step: str) -> str:
        """The same in every attempt of this job."""
        return f"{self.job_id}:{step}"

    async def call(self, prompt: Prompt) -> Answer:
        """One request on the wire, with its row in the ledger and its pieces in the log. Raises CallFailed."""
        if self._provider is None:
            raise NoProvider
        await self._check_budget()
        call = await self._open(self._provider)
        receipt = Receipt()
        try:
            text = await self._follow(self._provider, prompt, call, receipt)
        finally:
            self._book(call, receipt)
            with suppress(LeaseLost, WriterBroken):
                await self._close(call, receipt)
        return Answer(
            text=text,
            finish_reason=receipt.finish_reason,
            truncated=receipt.truncated,
            input_tokens=receipt.input_tokens,
            output_tokens=receipt.output_tokens,
        )

    def _book(self, call: int, receipt: Receipt) -> None:
        """What is known of the cost of a call that has ended; of one that was stopped for it, about how much."""
        receipt.abandon()
        stopped = receipt.outcome is CallOutcome.CANCEL_UNCONFIRMED and receipt.cost_usd is None
        if stopped and self._budget.is_passed() and (usd := self._budget.expected(call)) is not None:
            receipt.price(usd, "estimated")
        self._budget.book(call, receipt.cost_usd, may_be_more=receipt.cost_is_lower_bound)

    async def _follow(self, provider: Provider, prompt: Prompt, call: int, receipt: Receipt) -> str:
        """Say what comes, as long as the job may pay for it; returns the text."""
        price = provider.price(self._model)
        asked = sum(len(message.content) for message in prompt.messages)
        parts: list[str] = []
        got = 0
        async with aclosing(provider.call(self._model, prompt, receipt)) as pieces:
            async for raw in pieces:
                piece = Piece(clean_text(raw.text), raw.channel)
                if piece.channel is None:
                    parts.append(piece.text)
                await self._say(piece)
                got += len(piece.text)
                if price is not None:
                    self._budget.expect(call, estimate_usd(price, asked, got))
                    await self._check_budget()
        return "".join(parts)

    async def _check_budget(self) -> None:
        """Stop the run where its calls cost more than the job may. Raises BudgetPassed behind a shield."""
        if self._budget.is_passed():
            self._on_budget_passed()
            await anyio.lowlevel.checkpoint()
            raise BudgetPassed

    async def _open(self, provider: Provider) -> int:
        """Commit the call's row before anything is sent; returns its number."""
        # Kept apart from the count: a handler may have several calls on their way at once.
        call = self._calls = self._calls + 1
        # As long as PostgreSQL is away nothing may be sent; the lease keeper says when to stop waiting.
        async for attempt in stamina.retry_context(
            on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=None, wait_max=2.0
        ):
            with attempt:
                if not await open_call(self._database, self._lease, call, provider.name, self._model):
                    raise LeaseLost
        return call

    async def _close(self, call: int, receipt: Receipt) -> None:
        """Close the call's row, however long PostgreSQL is away; a stopped run waits only so long."""
        try:
            await self._commit_end(call, receipt)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CLOSE_SECONDS, shield=True) as last_try:
                await self._commit_end(call, receipt)
            if last_try.cancelled_caught:
                # Whether it was committed is not known, so nobody can say where the log is.
                self._writer.fail(WriterBroken())
            raise

    async def _commit_end(self, call: int, receipt: Receipt) -> None:
        outcome = receipt.outcome or CallOutcome.UNKNOWN
        # What failed or was never sent costs nothing to repeat; what succeeded is paid for like what is not known.
        self.has_spent |= outcome not in {CallOutcome.FAILED, CallOutcome.CANCELLED}
        event = external_event(self.attempt, call, outcome)
        closing = partial(_closing, lease=self._lease, call=call, end=_end_of(receipt, outcome))
        await self._appender.commit_with(self._writer, event, closing)


async def _closing(executor: Executor, lease: Lease, call: int, end: CallEnd) -> None:
    await close_call(executor, lease, call, end)


def _end_of(receipt: Receipt, outcome: CallOutcome) -> CallEnd:
    return CallEnd(
        outcome=outcome,
        error_class=receipt.error_class,
        error_code=receipt.code,
        http_status=receipt.http_status,
        finish_reason=receipt.finish_reason and clean_text(receipt.finish_reason)[:100],
        provider_request_id=receipt.provider_request_id and clean_text(receipt.provider_request_id)[:200],
        sent_at=receipt.sent_at,
        first_chunk_at=receipt.first_chunk_at,
        input_tokens=receipt.input_tokens,
        output_tokens=receipt.output_tokens,
        usage_source=receipt.usage_source,
        cost_usd=receipt.cost_usd,
        cost_source=receipt.cost_source,
        cost_is_lower_bound=receipt.cost_is_lower_bound,
    )
