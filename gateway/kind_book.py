"""The kinds that workers registered, and their inputs' schemas, compiled once."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NoReturn

import anyio
import jsonschema_rs
import orjson
import structlog

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.kinds import JobKind, list_kinds

REFRESH_SECONDS = 5
# Patterns come from a team's own schemas and are run on callers' text.
BACKTRACK_STEPS = 100_000

log = structlog.get_logger()


class KindBook:
    """What the table said last; a few seconds old at most, and asked again where a name is missing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, JobKind] = {}
        self._asked_at = float("-inf")
        self._asking = anyio.Lock()

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self._known.values())

    @property
    def by_name(self) -> Mapping[str, JobKind]:
        """All that are known now."""
        return self._known

    async def find(self, name: str) -> JobKind | None:
        """The kind of this name, if any worker ever registered one."""
        if name not in self._known:
            came_at = anyio.current_time()
            async with self._asking:
                # Only a question that was put after this one came can say that no worker has registered the kind.
                if self._asked_at <= came_at:
                    await self.refresh()
        return self._known.get(name)

    async def refresh(self) -> None:
        """Read the table again."""
        asked_at = anyio.current_time()
        kinds = await list_kinds(self._database)
        self._known = {kind.kind: kind for kind in kinds if self._is_sound(kind)}
        self._asked_at = asked_at

    def _is_sound(self, kind: JobKind) -> bool:
        """Whether its schema is one: if not, the kind is unknown here until a worker registers a better one."""
        try:
            validator_of(kind)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            log.error("kind has no valid schema", kind=kind.kind, version=kind.version, error=type(error).__name__)
            return False
        return True

    async def run(self) -> None:
        """Keep up with the table until cancelled."""
        while True:
            await anyio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.debug("kinds not read", error=str(error))


def validator_of(kind: JobKind) -> jsonschema_rs.Validator:
    """What checks the kind's input. Raises ValueError and the library's errors for a schema that is none."""
    return _compiled_once(orjson.dumps(kind.input_schema))


@lru_cache(maxsize=256)
def _compiled_once(schema_json: bytes) -> jsonschema_rs.Validator:
    return compiled(orjson.loads(schema_json))


def compiled(schema: dict[str, object]) -> jsonschema_rs.Validator:
    """A validator that fetches nothing from anywhere and gives up on patterns that explode."""
    return jsonschema_rs.validator_for(
        schema,
        retriever=_refuse_to_fetch,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_STEPS),
    )


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"a schema may not refer to {uri}; put what it needs into it")
