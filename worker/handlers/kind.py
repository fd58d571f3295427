"""What a kind of job is, and what its handler gets.

    @dataclass Kind          name, version, input schema, whether it may be repeated, and the handler
    handler(run, input)      an async function; its return value is the job's result

A handler never sees the database. Whatever it emits is committed under the run's lease, and a run
that lost its lease is cancelled at its next await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

from worker.providers.provider import Prompt

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

DEFAULT_TIME_LIMIT_S = 600  # one attempt; docs/protocol.md 5

# What one request may ask for at most, too; docs/protocol.md 3.
MOST_USD = Decimal(10_000)
MOST_CALLS = 32_767  # as many as an attempt can number
_NANO = Decimal("1e-9")

WorksWith = Literal["any", "models", "none"]
"""Which providers a kind can use: any, only real models, or none because it calls nobody."""


class Repeat(StrEnum):
    """Whether an attempt may be started again when nobody knows what became of the last one."""

    SAFE = "safe"
    CHECKPOINT = "checkpoint"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole call: `text` is what was emitted without a channel; tokens are None where not reported."""

    text: str
    finish_reason: str | None = None
    truncated: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None


class RunContext(Protocol):
    """One run as its handler sees it. Every method is awaited until the log's buffer has taken it."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def attempt(self) -> int: ...

    async def emit(self, text: str, channel: str | None = None) -> None:
        """Adds to the job's text, or to a channel beside it."""
        ...

    async def emit_data(self, name: str, value: Json) -> None:
        """Emits a `data` event; a value over 60 KiB of JSON is an error."""
        ...

    async def progress(self, done: int, total: int, label: str = "") -> None:
        """Emits a `progress` event."""
        ...

    @property
    def checkpoint(self) -> Json:
        """What an earlier attempt stored last, or None: begin there. The reader keeps the text up to it."""
        ...

    async def store_checkpoint(self, value: Json) -> None:
        """Keeps `value` for a later attempt, with all that was emitted before; returns when it is committed."""
        ...

    def step_key(self, step: str) -> str:
        """A key for one step of this job, the same in every attempt, for effects that can be deduplicated outside."""
        ...

    async def call(self, prompt: Prompt) -> Answer:
        """Does one call at the job's provider, recorded in the ledger, its pieces emitted as they come.

        Raises `CallFailed`; a handler that does not handle it lets the run decide what it means.
        """
        ...


Handler: TypeAlias = Callable[[RunContext, dict[str, Json]], Awaitable[Json]]
"""Gets the run and the input, which fits the kind's schema, and returns the result. A cancel reaches it as one."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job. `input_schema` is JSON Schema draft 2020-12; an older version never replaces a newer.

    Money is US dollars. `price_usd`: what an accepted result costs, whatever its calls did; None = what they cost.
    `max_cost_usd`: past this a job that says nothing itself is stopped. `calls`: how many one execution makes at
    most, with which a worst case can be reserved; None = not known.
    """

    name: str
    version: int
    input_schema: dict[str, Json]
    repeat: Repeat
    handler: Handler
    works_with: WorksWith = "any"
    time_limit_s: int = DEFAULT_TIME_LIMIT_S
    price_usd: Decimal | None = None
    max_cost_usd: Decimal | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        """Refuse money that no job could be created with. Raises ValueError."""
        for name, least in (("price_usd", 0), ("max_cost_usd", _NANO)):
            usd = getattr(self, name)
            if usd is not None and not (usd.is_finite() and least <= usd <= MOST_USD and usd == usd.quantize(_NANO)):
                raise ValueError(f'{self.name}: {name} takes dollars with at most 9 decimals, like "0.25", not {usd}')
        if self.price_usd is not None and self.max_cost_usd is not None and self.price_usd > self.max_cost_usd:
            raise ValueError(f"{self.name}: price_usd is over max_cost_usd, and no more is ever charged; raise that")
        if self.calls is not None and not 1 <= self.calls <= MOST_CALLS:
            raise ValueError(f"{self.name}: calls takes 1 to {MOST_CALLS}, or None where nobody can say")


def kind(
    name: str,
    *,
    version: int = 1,
    input_schema: dict[str, Json],
    repeat: Repeat,
    works_with: WorksWith = "any",
    time_limit_s: int = DEFAULT_TIME_LIMIT_S,
    price_usd: Decimal | str | None = None,
    max_cost_usd: Decimal | str | None = None,
    calls: int | None = None,
) -> Callable[[Handler], Kind]:
    """Makes a kind of the async function below it; a file of such kinds is what `--handlers` takes.

    `repeat` has no default on purpose: whether a second execution is harmless is for its author to say.
    """
    money = (None if usd is None else Decimal(usd) for usd in (price_usd, max_cost_usd))
    price, most = money
    return lambda handler: Kind(
        name, version, input_schema, repeat, handler, works_with, time_limit_s, price, most, calls
    )
