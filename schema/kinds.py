"""Kinds of jobs: workers say at their start what they can do, gateways check requests against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from schema.database import Database
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind. `choices` maps each provider that the kind can work with to its models; no models = any or none.

    Money is US dollars: `price_usd` of an accepted result, None = what its calls cost; `max_cost_usd` of a job that
    does not say so itself. `calls`: how many one execution makes at most. `prices` {provider: {model or "": {"input",
    "output": dollars a million tokens as strings, "context": tokens of one call or null}}}.
    """

    kind: str
    version: int
    input_schema: Mapping[str, Any]
    repeat: str
    time_limit_s: int
    calls_provider: bool
    default_provider: str | None
    default_model: str | None
    choices: Mapping[str, Sequence[str]]
    price_usd: Decimal | None = None
    max_cost_usd: Decimal | None = None
    calls: int | None = None
    prices: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


async def register_kind(database: Database, kind: JobKind) -> None:
    """Make the kind known; one of a newer version stands."""
    await database.execute(
        statement("register_kind"),
        kind.kind,
        kind.version,
        orjson.dumps(kind.input_schema).decode(),
        kind.repeat,
        kind.time_limit_s,
        kind.calls_provider,
        kind.default_provider,
        kind.default_model,
        orjson.dumps(kind.choices).decode(),
        kind.price_usd,
        kind.max_cost_usd,
        kind.calls,
        orjson.dumps(kind.prices).decode(),
    )


async def list_kinds(database: Database) -> list[JobKind]:
    """All kinds that any worker ever registered."""
    rows = await database.fetch(statement("list_kinds"))
    parsed = ("input_schema", "choices", "prices")
    return [JobKind(**dict(row) | {name: orjson.loads(row[name]) for name in parsed}) for row in rows]


async def see_worker(database: Database, name: str, kinds: Sequence[str], providers: Sequence[str]) -> None:
    """Note that this worker is there, takes these kinds and has these providers."""
    await database.execute(statement("see_worker"), name, list(kinds), list(providers))


async def forget_worker(database: Database, name: str) -> None:
    """Note that this worker has gone."""
    await database.execute(statement("forget_workers"), name)
