"""What a kind of job is, and what its handler gets.

    @dataclass Kind          name, version, input schema, whether it may be repeated, and the handler
    handler(run, input)      an async function; its return value is the job's result

A handler never sees the database. Whatever it emits is committed under the run's lease, and a run
that lost its lease is cancelled at its next await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

from worker.providers.provider import Prompt

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

DEFAULT_TIME_LIMIT_S = 600  # one attempt; docs/protocol.md 5

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

    async def call(self, prompt: Prompt) -> Answer:
        """Does one call at the job's provider, recorded in the ledger, its pieces emitted as they come.

        Raises `CallFailed`; a handler that does not handle it lets the run decide what it means.
        """
        ...


Handler: TypeAlias = Callable[[RunContext, dict[str, Json]], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job. `input_schema` is JSON Schema draft 2020-12; an older version never replaces a newer."""

    name: str
    version: int
    input_schema: dict[str, Json]
    repeat: Repeat
    handler: Handler
    works_with: WorksWith = "any"
    time_limit_s: int = DEFAULT_TIME_LIMIT_S
