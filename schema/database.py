"""The pool of connections, and the one place where the driver's errors become ours."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

from schema.errors import DatabaseBusy, DatabaseUnavailable, IsolationRefused, WriteRefused
from schema.statements import statement

# Longer than any statement of ours takes, shorter than a caller's patience; a stuck server is "unavailable".
STATEMENT_SECONDS = 30
# A row is held for one short transaction at a time; who waits longer than this has met something stuck.
LOCK_SECONDS = 2
CONNECT_SECONDS = 5
# How long a request may queue for one of the pool's connections before it is told to come back.
ACQUIRE_SECONDS = 10

_SESSION = {
    "application_name": "outlive",
    # A role's own default of repeatable read would make every claim that meets a lock fail with 40001.
    "default_transaction_isolation": "read committed",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS}s",
    "TimeZone": "UTC",
    # What users wrote stays out of the server's log, whatever its own setting says.
    "log_parameter_max_length_on_error": "0",
}

# 08 connection, 53 resources, 57P shutdown, 58 the server's disk, 57014 and 25P03 our own limits on a server that is
# stuck; 25006 is a primary that became a standby.
_UNAVAILABLE_STATES = ("08", "53", "57P", "58", "57014", "25P03", "25006")
# A wrong address, or a database or role that somebody has yet to make.
_NOT_LET_IN_STATES = ("28", "3D000")
# A lock that stayed taken, a deadlock, a serialization failure: the transaction was rolled back whole.
_BUSY_STATES = ("55P03", "40P01", "40001")
# Data exceptions and broken constraints, a missing partition among them.
_REFUSED_STATES = ("22", "23")


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Where PostgreSQL is and how it may be used."""

    url: str
    direct_url: str
    pool_size: int = 10
    # For a process whose statements all go by keys: planning one of them anew takes as long as running it.
    plans_once: bool = False

    @property
    def pooled(self) -> bool:
        """Whether a transaction pooler is said to stand before `url`, which forbids what lives in a session."""
        return self.url != self.direct_url

    def session(self) -> dict[str, Any]:
        """Keyword arguments of the driver for a connection to `url`.

        A pooler refuses start-up parameters that it does not know and gives prepared statements to strangers.
        """
        if self.pooled:
            return {"statement_cache_size": 0, "timeout": CONNECT_SECONDS}
        plans = {"plan_cache_mode": "force_generic_plan"} if self.plans_once else {}
        return {"server_settings": _SESSION | plans, "timeout": CONNECT_SECONDS}


async def check_isolation(settings: DatabaseSettings) -> None:
    """Raise IsolationRefused where a pooler hands out sessions of another isolation; DatabaseUnavailable."""
    if not settings.pooled:
        return
    with translated():
        connection = await asyncpg.connect(settings.url, **settings.session())
        try:
            found = await connection.fetchval(statement("default_isolation"))
        finally:
            await connection.close()
    if found != "read committed":
        raise IsolationRefused(found)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into ours: not there, or locked; what is a fault of our own passes unchanged."""
    try:
        yield
    except asyncpg.PostgresError as error:
        state = str(error.sqlstate or "08")
        if state.startswith(_BUSY_STATES):
            raise DatabaseBusy("a row stayed locked; nothing was written, try again") from error
        if state.startswith(_UNAVAILABLE_STATES):
            raise DatabaseUnavailable("PostgreSQL is restarting or out of reach; try again later") from error
        if state.startswith(_NOT_LET_IN_STATES):
            raise DatabaseUnavailable("PostgreSQL does not let us in; check DATABASE_URL and the role") from error
        if state.startswith(_REFUSED_STATES):
            raise WriteRefused(state) from None  # the driver's text may hold the value itself
        raise
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise DatabaseUnavailable("PostgreSQL does not answer; check DATABASE_URL and the server") from error


async def _keep_session(_: object) -> None:
    """Instead of the driver's reset, a round trip at each release: nothing of ours stays in a session."""


@dataclass(frozen=True, slots=True)
class Database:
    """A pool, with statements that raise only our errors.

    A write whose connection breaks while it commits raises DatabaseUnavailable too: whether it happened is not
    known then, and whoever repeats it must look first.
    """

    settings: DatabaseSettings
    pool: asyncpg.Pool

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: DatabaseSettings) -> AsyncIterator[Self]:
        """The pool, opened without waiting for PostgreSQL: who needs it first learns that it is not there."""
        pool = asyncpg.create_pool(
            settings.url,
            min_size=0,
            max_size=settings.pool_size,
            reset=_keep_session,
            command_timeout=STATEMENT_SECONDS + CONNECT_SECONDS,
            **settings.session(),
        )
        async with pool:
            yield cls(settings, pool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """One connection of the pool, for statements in a row."""
        with translated():
            async with self.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """One connection with a transaction that ends with the block; keep it short."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def fetch(self, statement: str, *values: object) -> Sequence[asyncpg.Record]:
        """All rows."""
        async with self.connection() as connection:
            return await connection.fetch(statement, *values)  # type: ignore[no-any-return]

    async def fetchrow(self, statement: str, *values: object) -> asyncpg.Record | None:
        """The first row."""
        async with self.connection() as connection:
            return await connection.fetchrow(statement, *values)

    async def fetchval(self, statement: str, *values: object) -> Any:
        """The first value of the first row."""
        async with self.connection() as connection:
            return await connection.fetchval(statement, *values)

    async def execute(self, statement: str, *values: object) -> None:
        """No rows."""
        async with self.connection() as connection:
            await connection.execute(statement, *values)
