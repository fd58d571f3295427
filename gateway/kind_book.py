"""The kinds that workers registered, each with its input's schema ready to check with."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import anyio
import jsonschema_rs
import structlog

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.kinds import JobKind, list_kinds

REFRESH_SECONDS = 5
# Patterns come from a team's own schemas and are run on callers' text.
BACKTRACK_STEPS = 100_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KnownKind:
    """A kind with its compiled schema."""

    kind: JobKind
    validator: jsonschema_rs.Validator


class KindBook:
    """What the table said last; a few seconds old at most, and asked again where a name is missing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, KnownKind] = {}
        self._asked_at = float("-inf")
        self._asking = anyio.Lock()

    def __iter__(self) -> Iterator[JobKind]:
        return (known.kind for known in self._known.values())

    async def find(self, name: str) -> KnownKind | None:
        """The kind of this name, if any worker ever registered one."""
        if name not in self._known:
            came_at = anyio.current_time()
            async with self._asking:
                # Only a question that was put after this one came can say that no worker has registered the kind.
                if self._asked_at <= came_at:
                    await self.refresh()
        return self._known.get(name)

    async def refresh(self) -> None:
        """Read the table again; a schema that did not change is not compiled again."""
        asked_at = anyio.current_time()
        known: dict[str, KnownKind] = {}
        for kind in await list_kinds(self._database):
            before = self._known.get(kind.kind)
            if before is not None and before.kind == kind:
                known[kind.kind] = before
            elif (validator := _compiled(kind)) is not None:
                known[kind.kind] = KnownKind(kind, validator)
        self._known, self._asked_at = known, asked_at

    async def run(self) -> None:
        """Keep up with the table until cancelled."""
        while True:
            await anyio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.debug("kinds not read", error=str(error))


def _compiled(kind: JobKind) -> jsonschema_rs.Validator | None:
    """None for a schema that is none: the kind is unknown here until a worker registers a better one."""
    try:
        return compiled(dict(kind.input_schema))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        log.error("kind has no valid schema", kind=kind.kind, version=kind.version, error=type(error).__name__)
        return None


def compiled(schema: dict[str, object]) -> jsonschema_rs.Validator:
    """A validator that fetches nothing from anywhere and gives up on patterns that explode."""
    return jsonschema_rs.validator_for(
        schema,
        retriever=_refuse_to_fetch,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_STEPS),
    )


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"a schema may not refer to {uri}; put what it needs into it")
