"""The provider calls of one run: each with its row in the ledger, its pieces in the log and its cost in the budget.

    open      the row is committed before the request is sent
    follow    piece by piece into the log, each with its place where the generation can be gone on with
    settle    what became of it, in one commit with the `external` event

Where the attempt before left a generation running, the call that asks for the same goes on with it: from its place
where the log holds nothing else since the last checkpoint, so that no text is void; else from its start. Neither is
paid again.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial

import anyio
import anyio.lowlevel
import stamina

from schema.bookmarks import Bookmark, Unfinished, begin_bookmark, find_unfinished, hand_over, text_between
from schema.calls import CallStart, open_call
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.events import Draft, EventKind
from schema.json_line import json_line
from schema.runs import Lease, NextReason
from schema.text import clean_json, clean_text
from worker.appender import Appender
from worker.asked import hash_of
from worker.budget import Budget, BudgetPassed, estimate_usd
from worker.call_end import closing
from worker.external import external_event
from worker.handlers.kind import Answer
from worker.log_writer import CHUNK_CHARACTERS, LeaseLost, LogWriter, WriterBroken
from worker.providers.provider import CallOutcome, ErrorClass, Piece, Place, Prompt, Provider, Reattachable, Receipt
from worker.verdicts import Left

# Closing the row of a call outlives a cancellation by so much; what stays open is closed as unknown with the run.
CLOSE_SECONDS = 5.0
# What asking a provider to end a generation may take; a worker that stops has 20 s in all for its runs.
STOP_SECONDS = 5.0


class NoProvider(LookupError):
    """The job has no provider, so its kind cannot call one; name one when the job is created."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a run has for its calls: `stop` for when they cost too much, `unwanted` for whether nobody wants them."""

    stop: Callable[[], None]
    unwanted: Callable[[], bool]


class Caller:
    """Makes the calls of one run."""

    def __init__(
        self,
        database: Database,
        appender: Appender,
        writer: LogWriter,
        provider: Provider | None,
        model: str | None,
        budget: Budget,
        wishes: Wishes,
    ) -> None:
        self._database = database
        self._appender = appender
        self._writer = writer
        self._provider = provider
        self._model = model
        self._budget = budget
        self._wishes = wishes
        self._calls = 0
        self._open_calls = 0
        # Whether the log holds nothing since the last checkpoint but what one call has said.
        self._seamless = True
        self._left: Bookmark | None = None
        self._lost_calls = 0
        self._begun: set[int] = set()
        self._unfinished: Unfinished | None = None
        self._is_promised = False
        self.has_spent = False

    @property
    def _lease(self) -> Lease:
        return self._writer.lease

    @property
    def left(self) -> Left | None:
        """What another attempt could go on with, if this one ended now."""
        if self._unfinished is not None:
            return Left.of(seamless=self._seamless and self._unfinished.seamless)
        # Of several lost calls only one could be gone on with, and the others would be bought again.
        alone = self._left is not None and self._lost_calls <= 1
        return Left.of(seamless=self._left.seamless) if self._left is not None and alone else None

    async def look_back(self) -> None:
        """Before the handler begins: find what the attempt before left running."""
        if self._lease.attempt > 1:
            async for attempt in _while_away():
                with attempt:
                    reason, self._unfinished = await find_unfinished(self._database, self._lease.job_id)
                    self._is_promised = reason is NextReason.REATTACHED

    def handler_spoke(self) -> None:
        """The handler has said something itself, which it would say again: the log is not one call's alone."""
        self._seamless = False
        if self._left is not None and self._left.seamless:
            self._left = replace(self._left, seamless=False)
            self._writer.move(self._left)

    def checkpointed(self) -> None:
        """The next attempt begins here."""
        self._seamless = self._open_calls == 0

    async def call(self, prompt: Prompt) -> Answer:
        """One request on the wire. Raises CallFailed."""
        if self._provider is None:
            raise NoProvider
        await self._check_budget()
        if self._open_calls:
            self.handler_spoke()
        asked, receipt = hash_of(self._model, prompt), Receipt()
        prompt = prompt if prompt.step_key else replace(prompt, step_key=f"{self._lease.job_id}:{asked.hex()[:32]}")
        before = self._take_unfinished(asked, receipt)
        call = await self._open(self._provider, asked, before)
        self._open_calls += 1
        try:
            text = await self._follow(self._provider, prompt, call, receipt, before)
        finally:
            self._open_calls -= 1
            await self._settle(self._provider, call, receipt)
        # Said by a call, this is said again by the next attempt, unless a checkpoint comes first.
        self._seamless = False
        return _answer(text, receipt)

    def _take_unfinished(self, asked: bytes, receipt: Receipt) -> Unfinished | None:
        """What this call goes on with. Raises CallFailed where its reader was promised that, and it cannot be."""
        before, self._unfinished = self._unfinished, None
        promised, self._is_promised = self._is_promised, False
        provider = self._provider
        if not isinstance(provider, Reattachable) or before is None or not before.is_of(provider.name, asked):
            before = None
        if promised and not (before is not None and before.seamless and self._seamless):
            raise receipt.fail(ErrorClass.UNKNOWN, "cannot_go_on")
        return before and replace(before, seamless=promised)

    async def _check_budget(self) -> None:
        """Stop the run where its calls cost more than the job may. Raises BudgetPassed behind a shield."""
        if self._budget.is_passed():
            self._wishes.stop()
            await anyio.lowlevel.checkpoint()
            raise BudgetPassed

    async def _open(self, provider: Provider, asked: bytes, before: Unfinished | None) -> int:
        """Commit the call's row before anything is sent; returns its number."""
        # Kept apart from the count: a handler may have several calls on their way at once.
        call = self._calls = self._calls + 1
        start = CallStart(call, provider.name, self._model)
        if isinstance(provider, Reattachable):
            start = replace(start, asked=asked, seamless=self._seamless)
        if before is not None:
            start = replace(start, continues=(before.attempt, before.call), keeps_text=before.seamless)
        # As long as PostgreSQL is away nothing may be sent; the lease keeper says when to stop waiting.
        async for attempt in _while_away():
            with attempt:
                await self._open_once(start)
        self._left = None
        if before is not None:
            self._budget.hand_over()
            self._begun.add(call)
            self._left = Bookmark(call, before.cursor if before.seamless else None, self._seamless)
        return call

    async def _open_once(self, start: CallStart) -> None:
        if start.asked is not None:
            # The row says where in the log its generation begins.
            await self._appender.flush(self._writer)
        if start.continues is None:
            if not await open_call(self._database, self._lease, start):
                raise LeaseLost
            return
        async with self._database.transaction() as connection:
            if not await open_call(connection, self._lease, start):
                raise LeaseLost
            await hand_over(connection, self._lease.job_id, *start.continues)

    async def _follow(
        self, provider: Provider, prompt: Prompt, call: int, receipt: Receipt, before: Unfinished | None
    ) -> str:
        """Say what comes, as long as the job may pay for it; returns the text."""
        price = provider.price(self._model)
        asked = sum(len(message.content) for message in prompt.messages)
        parts = [await self._text_so_far(before)]
        got = len(parts[0])
        async with aclosing(self._pieces(provider, prompt, receipt, before)) as pieces:
            async for raw, channel, cursor in pieces:
                text = clean_text(raw)
                at = None if cursor is None else await self._place(call, receipt, cursor)
                if not text:
                    continue
                if channel is None:
                    parts.append(text)
                    await self._appender.chunk(self._writer, text, at)
                else:
                    await self._appender.event(self._writer, *channel_drafts(text, channel), at=at)
                got += len(text)
                if price is not None:
                    self._budget.expect(call, estimate_usd(price, asked, got))
                    await self._check_budget()
        return "".join(parts)

    def _pieces(
        self, provider: Provider, prompt: Prompt, receipt: Receipt, before: Unfinished | None
    ) -> AsyncGenerator[Piece]:
        if before is None or not isinstance(provider, Reattachable):
            return provider.call(self._model, prompt, receipt)
        at = Place(before.resume_id, before.cursor if before.seamless else None)
        return provider.resume(self._model, at, receipt)

    async def _text_so_far(self, before: Unfinished | None) -> str:
        if before is None or not before.seamless:
            return ""
        async for attempt in _while_away():
            with attempt:
                return await text_between(self._database, self._lease.job_id, before.began_seq, self._writer.last_seq)
        raise AssertionError("the loop above ends by its return or by an error")

    async def _place(self, call: int, receipt: Receipt, cursor: str) -> Bookmark | None:
        """The generation's id is kept before anything of it is said, each further place with what was said."""
        if receipt.resume_id is None:
            return None
        at = self._left = Bookmark(call, cursor, self._seamless)
        if call not in self._begun:
            self._begun.add(call)
            async for attempt in _while_away():
                with attempt:
                    if not await begin_bookmark(self._database, self._lease, receipt.resume_id, at):
                        raise LeaseLost
        return at if self._seamless else None

    async def _settle(self, provider: Provider, call: int, receipt: Receipt) -> None:
        """Whatever way the call ended: the generation that nobody wants is ended, the cost booked, the row closed."""
        receipt.abandon()
        if isinstance(provider, Reattachable) and receipt.is_left_running and self._wishes.unwanted():
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                await provider.stop(self._model, receipt)
        self._lost_calls += receipt.outcome is CallOutcome.UNKNOWN
        if receipt.outcome is not CallOutcome.UNKNOWN or receipt.resume_id is None:
            self._left = None
        self._book(call, receipt)
        with suppress(LeaseLost, WriterBroken):
            await self._close(call, receipt)

    def _book(self, call: int, receipt: Receipt) -> None:
        """What is known of the cost of a call that has ended; of one that was stopped for it, about how much."""
        stopped = receipt.outcome is CallOutcome.CANCEL_UNCONFIRMED and receipt.cost_usd is None
        if stopped and self._budget.is_passed() and (usd := self._budget.expected(call)) is not None:
            receipt.price(usd, "estimated")
        self._budget.book(call, receipt.cost_usd, may_be_more=receipt.cost_is_lower_bound)

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
        event = external_event(self._lease.attempt, call, outcome)
        await self._appender.commit_with(self._writer, event, closing(self._lease, call, receipt, outcome))


def channel_drafts(text: str, channel: str) -> list[Draft]:
    """The events that say a text beside the job's own, none longer than a line may be."""
    parts = [text[start : start + CHUNK_CHARACTERS] for start in range(0, len(text), CHUNK_CHARACTERS)]
    name = clean_text(channel)
    return [
        Draft(EventKind.CHANNEL, json_line(clean_json({"text": part, "channel": name})).decode()) for part in parts
    ]


_while_away = partial(
    stamina.retry_context, on=(DatabaseUnavailable, DatabaseBusy), attempts=None, timeout=None, wait_max=2.0
)
"""What is said again until PostgreSQL has heard it; the lease keeper says when to stop waiting."""


def _answer(text: str, receipt: Receipt) -> Answer:
    return Answer(
        text=text,
        finish_reason=receipt.finish_reason,
        truncated=receipt.truncated,
        input_tokens=receipt.input_tokens,
        output_tokens=receipt.output_tokens,
    )
