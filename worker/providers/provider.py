"""The contract between a run and whoever does the work of one call.

A provider makes exactly one request per call and repeats nothing by itself: a repeated request is
a second bill, and only the run knows whether the job may pay twice. Everything that the ledger needs
is left in a `Receipt`, in whatever way the call ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, runtime_checkable

Role = Literal["system", "user", "assistant"]
LEFT_RUNNING = "left_running"
CostSource = Literal["provider", "local", "estimated"]


class CallOutcome(StrEnum):
    """How one call ended, as the ledger and the `external` event name it (docs/protocol.md 4)."""

    SUCCEEDED = "succeeded"
    """The provider's own terminal marker was seen."""
    FAILED = "failed"
    """The provider refused, reported an error, or never got the whole request."""
    UNKNOWN = "unknown"
    """The whole request was sent, and nothing says what became of it: it may be done and billed."""
    CANCELLED = "cancelled"
    """We stopped it, and it is certain that nothing goes on."""
    CANCEL_UNCONFIRMED = "cancel_unconfirmed"
    """We stopped listening after the request was sent; the provider may go on, and bill."""


class ErrorClass(StrEnum):
    """What a failed or unknown call means for the job (docs/protocol.md 3, `error.class`)."""

    PERMANENT = "permanent"
    REFUSED = "refused"
    TRANSIENT = "transient"
    THROTTLED = "throttled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Document:
    """What an extractive provider works on: a text, and how many of its sentences are wanted at most."""

    text: str
    sentences: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a handler asks for. A model reads `messages`; a provider without one reads `document`.

    `step_key` is the same in every attempt of a job that asks for the same, and goes to endpoints that deduplicate by
    it; the run makes one where the handler gives none.
    """

    messages: tuple[Message, ...]
    max_output_tokens: int | None = None
    temperature: float | None = None
    document: Document | None = None
    step_key: str | None = None


class Piece(NamedTuple):
    """One piece of output. With a channel ("reasoning", "tool:ID") it is not part of the text.

    `cursor`: where one could go on behind it, in the provider's own counting; None where one could not. A tuple,
    because there are ten thousand a second, and a frozen dataclass takes four times as long to make.
    """

    text: str
    channel: str | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """US dollars per million tokens. `context_tokens`: what one call can hold at most, None where nobody says."""

    input_usd: Decimal
    output_usd: Decimal
    context_tokens: int | None = None

    def as_json(self) -> dict[str, str | int | None]:
        """As `job_kinds.prices` holds it."""
        return {"input": f"{self.input_usd:f}", "output": f"{self.output_usd:f}", "context": self.context_tokens}


FREE = TokenPrice(Decimal(0), Decimal(0))


@dataclass(slots=True)
class Receipt:
    """What is known of one call, filled while it goes on; the ledger row of the call is closed with it.

    Times are UTC. `sent_at` is when the last byte of the request left: before that the provider cannot
    have begun. `code` is one short machine word and never a text from outside. `cost_usd` None means
    not known, which is not 0; with `cost_is_lower_bound` it may have cost more. `retry_after_s` is the
    provider's own wish in seconds. `resume_id` is the generation's own id, where it goes on when nobody listens.
    `price_used` is what a cost from reported tokens was reckoned with, `price_source` whose prices those are.
    `secret` is the key that the call went out with.
    """

    sent_at: datetime | None = None
    first_chunk_at: datetime | None = None
    provider_request_id: str | None = None
    http_status: int | None = None
    outcome: CallOutcome | None = None
    error_class: ErrorClass | None = None
    code: str | None = None
    finish_reason: str | None = None
    truncated: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage_source: Literal["provider"] | None = None
    cost_usd: Decimal | None = None
    cost_source: CostSource | None = None
    cost_is_lower_bound: bool = False
    retry_after_s: float | None = None
    resume_id: str | None = None
    price_used: TokenPrice | None = None
    price_source: str | None = None
    priced_at: date | None = None
    secret: str | None = field(default=None, repr=False)

    def mark_sent(self) -> None:
        """The whole request is out, or out of our hands."""
        self.sent_at = self.sent_at or datetime.now(UTC)

    def mark_first_chunk(self) -> None:
        """Content has come; later calls change nothing."""
        self.first_chunk_at = self.first_chunk_at or datetime.now(UTC)

    def price(self, cost_usd: Decimal, source: CostSource) -> None:
        """Records a cost, in US dollars."""
        self.cost_usd, self.cost_source = cost_usd, source

    def fail(self, error_class: ErrorClass, code: str) -> CallFailed:
        """Closes the call as failed and returns the error to raise."""
        return self._close(CallOutcome.FAILED, error_class, code)

    def lose(self, code: str) -> CallFailed:
        """Closes the call as unknown and returns the error to raise; a known cost becomes a lower bound."""
        self.cost_is_lower_bound = True
        return self._close(CallOutcome.UNKNOWN, ErrorClass.UNKNOWN, code)

    def abandon(self, *, stops: bool = False) -> None:
        """Closes a call that its caller gave up; one that has an outcome already keeps it.

        A generation that goes on when nobody listens is left running. `stops`: it is known that this one does not.
        """
        if self.outcome is None and self.resume_id is not None:
            self.lose(LEFT_RUNNING)
        elif self.outcome is None:
            unsent = self.sent_at is None
            self.outcome = CallOutcome.CANCELLED if unsent or stops else CallOutcome.CANCEL_UNCONFIRMED
            self.cost_is_lower_bound = not unsent
            if unsent:
                self.price(Decimal(0), "local")

    def reopen(self) -> None:
        """Forgets the verdict and the cost: more has been learned."""
        self.outcome = self.error_class = self.code = self.cost_usd = self.cost_source = None
        self.cost_is_lower_bound = False

    @property
    def is_left_running(self) -> bool:
        """Whether it was given up while its generation went on."""
        return self.outcome is CallOutcome.UNKNOWN and self.code == LEFT_RUNNING

    def _close(self, outcome: CallOutcome, error_class: ErrorClass, code: str) -> CallFailed:
        self.outcome, self.error_class, self.code = outcome, error_class, code
        return CallFailed(self)


class CallFailed(Exception):
    """A provider call did not succeed; look at `receipt` for the class, the code and what it cost."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(f"provider call {receipt.outcome}: {receipt.error_class}, {receipt.code}")
        self.receipt = receipt


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on in a generation; `cursor` None is its start."""

    resume_id: str
    cursor: str | None = None


class Provider(Protocol):
    """Something that can do one call."""

    @property
    def name(self) -> str:
        """The name of its table in the providers file; the ledger and the limits go by it."""
        ...

    def price(self, model: str | None) -> TokenPrice | None:
        """What a model's tokens cost; None where nobody here knows."""
        ...

    def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """Does one request and yields its output as it comes.

        A normal end means `receipt.outcome` SUCCEEDED. Every other end raises `CallFailed` with the
        outcome FAILED or UNKNOWN; a cancelled or closed iterator closes the request, sets CANCELLED or
        CANCEL_UNCONFIRMED and lets the cancellation pass. Iterate inside `contextlib.aclosing`, or the
        request of an abandoned iteration stays open until the garbage collector finds it.
        """
        ...


@runtime_checkable
class Reattachable(Provider, Protocol):
    """A provider whose generations go on when nobody listens, and can be listened to again.

    `call` sets `receipt.resume_id` and yields a first piece, with a cursor and without a text, as soon as the
    generation has an id, so that the id is kept before anything of it is said.
    """

    def resume(self, model: str | None, at: Place, receipt: Receipt) -> AsyncGenerator[Piece]:
        """Go on with a generation, as `call` would have; it buys nothing."""
        ...

    async def stop(self, model: str | None, receipt: Receipt) -> None:
        """End the generation of a call that was given up, and correct its receipt by what the provider says."""
        ...


@dataclass(frozen=True, slots=True)
class CallIds:
    """By what a provider knows a call: the generation's id, if it has one, and that of the request."""

    resume_id: str | None
    request_id: str | None


@runtime_checkable
class Resolvable(Provider, Protocol):
    """A provider that may tell later what became of a call, and what it cost."""

    @property
    def can_look_up(self) -> bool:
        """Whether this one does: not every server that speaks the same has it."""
        ...

    async def look_up(self, model: str | None, ids: CallIds) -> Receipt | None:
        """What became of a call, once it is over; None while it goes on, or where nobody can say."""
        ...
