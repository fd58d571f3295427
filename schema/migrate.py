"""Migrations: numbered plain SQL, applied once each, in order, by whoever comes first.

`NNNN_name.pre.sql` goes before the processes are rolled, `NNNN_name.post.sql` after them. A file is never edited
once it has been applied anywhere: its SHA-256 is kept and compared.
"""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import asyncpg

from schema.database import CONNECT_SECONDS, translated
from schema.errors import MigrationChanged, SchemaNotReady, SchemaTooNew
from schema.partitions import make_partitions
from schema.statements import statement

Phase = Literal["pre", "post"]

_FOLDER = Path(__file__).parent / "migrations"
_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.(pre|post)\.sql$")
# Any bigint that nothing else in the database uses as an advisory lock.
_LOCK = int.from_bytes(hashlib.sha256(b"outlive migrations").digest()[:7])


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    phase: Phase
    text: str

    @property
    def sha256(self) -> str:
        """Of the file as it stands."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All files, by number; a number that is missing or doubled raises ValueError."""
    found = []
    for path in sorted(_FOLDER.glob("*.sql")):
        match = _NAME.match(path.name)
        if match is None:
            raise ValueError(f"{path.name}: name it NNNN_name.pre.sql or NNNN_name.post.sql")
        phase: Phase = "pre" if match[3] == "pre" else "post"
        found.append(Migration(int(match[1]), match[2], phase, path.read_text("utf-8")))
    if [each.number for each in found] != list(range(1, len(found) + 1)):
        raise ValueError("migrations are numbered 1, 2, 3, ... without a gap; rename the newest file")
    return found


# What this program needs at least, and the newest that it knows how to live with.
NEWEST_VERSION = len(migrations())
NEEDED_VERSION = max((each.number for each in migrations() if each.phase == "pre"), default=0)


def check_version(found: int) -> None:
    """Raise SchemaNotReady or SchemaTooNew where this program cannot work with version `found`."""
    if found < NEEDED_VERSION:
        raise SchemaNotReady(found, NEEDED_VERSION)
    if found > NEWEST_VERSION:
        raise SchemaTooNew(found, NEWEST_VERSION)


@asynccontextmanager
async def _session(url: str) -> AsyncIterator[asyncpg.Connection]:
    with translated():
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_SECONDS)


@asynccontextmanager
async def _alone(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that holds the migrators' lock: the others wait here, then find nothing left to do."""
    async with _session(url) as connection:
        await connection.execute(statement("lock_migrations"), _LOCK)
        try:
            yield connection
        finally:
            # The session's end would release it too, but only once the server has noticed.
            if not connection.is_closed():
                await connection.execute(statement("unlock_migrations"), _LOCK)


async def _applied(connection: asyncpg.Connection) -> dict[int, str]:
    for name in ("create_schema", "create_migrations"):
        await connection.execute(statement(name))
    rows = await connection.fetch(statement("list_migrations"))
    return {row["number"]: row["sha256"] for row in rows}


async def migrate(url: str, phase: Phase | None = None) -> list[Migration]:
    """Apply what is missing (of one phase, or all) and make the partitions of the coming weeks.

    `url` must lead to a session: behind a transaction pooler the lock would not hold. Safe with any number of
    migrators at once. Returns what was applied. Raises MigrationChanged, DatabaseUnavailable.
    """
    done = []
    async with _alone(url) as connection:
        applied = await _applied(connection)
        for each in migrations():
            if applied.get(each.number, each.sha256) != each.sha256:
                raise MigrationChanged(each.number)
            if each.number not in applied and phase in (None, each.phase):
                await _apply(connection, each)
                done.append(each)
        if applied or done:
            await make_partitions(connection)
    return done


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(migration.text)
        await connection.execute(statement("record_migration"), migration.number, migration.name, migration.sha256)


async def version(url: str) -> int:
    """The number of the newest migration that was applied; 0 for a database that knows nothing of us."""
    async with _session(url) as connection:
        if not await connection.fetchval(statement("has_migrations")):
            return 0
        return int(await connection.fetchval(statement("schema_version")))
