"""Kinds of jobs: workers say at their start what they can do, gateways check requests against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schema.database import Database
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind. `choices` maps each provider that the kind can work with to its models; no models = any or none."""

    kind: str
    version: int
    input_schema: Mapping[str, Any]
    repeat: str
    time_limit_s: int
    calls_provider: bool
    default_provider: str | None
    default_model: str | None
    choices: Mapping[str, Sequence[str]]


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
    )


async def list_kinds(database: Database) -> list[JobKind]:
    """All kinds that any worker ever registered."""
    rows = await database.fetch(statement("list_kinds"))
    parsed = ("input_schema", "choices")
    return [JobKind(**dict(row) | {name: orjson.loads(row[name]) for name in parsed}) for row in rows]


async def see_worker(database: Database, name: str, kinds: Sequence[str]) -> None:
    """Note that this worker is there and takes these kinds."""
    await database.execute(statement("see_worker"), name, list(kinds))


async def forget_worker(database: Database, name: str) -> None:
    """Note that this worker has gone."""
    await database.execute(statement("forget_workers"), name)
