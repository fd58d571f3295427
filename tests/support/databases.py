"""Databases for tests: one migrated template a session, a copy of it for every test.

A copy and not a rollback: NOTIFY fires on commit only, and its channels belong to a database.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from anyio.from_thread import start_blocking_portal

from tests.support.waiting import NeverHappened, until

T = TypeVar("T")

# Held while the template is made, so that parallel test processes make one. A number of no one else's.
TEMPLATE_LOCK = 0x6F75746C6976

# The backend of a killed process finds that out on the next read of its socket.
BACKENDS_END_WITHIN_S = 3.0

# Both strategies copy in much the same time (0.03 to 0.1 s), but what file_copy made drops twice as fast.
_COPY = "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy"

_CLIENTS = """
    SELECT concat(coalesce(nullif(application_name, ''), 'unnamed'), ', ', state, ': ', left(query, 200))
    FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'
"""


def in_database(url: str, name: str) -> str:
    """The same server's address with another database's name."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def database_of(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


class Databases:
    """Makes, watches and drops databases on the server of `admin_url`. Blocks, in a running loop too.

    `session` names the template, so that sessions on one server do not meet: letters, digits and underscores.
    """

    def __init__(self, admin_url: str, session: str) -> None:
        self._admin_url = admin_url
        self._template = f"outlive_template_{re.sub(r'[^a-z0-9_]', '_', session.lower())[:30]}"
        self._template_is_there = False
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())

    def close(self) -> None:
        self._stack.close()

    def create(self, *, migrated: bool = True) -> str:
        """The address of a new database, with the project's tables or empty."""
        name = f"outlive_test_{uuid.uuid4().hex}"
        if migrated and not self._template_is_there:
            self._portal.call(self._as_admin, self._make_template)
            self._template_is_there = True
        copy = _COPY.format(name, self._template if migrated else "template0")
        self._portal.call(self._as_admin, lambda admin: admin.execute(copy))
        return in_database(self._admin_url, name)

    def drop(self, url: str) -> None:
        name = database_of(url)
        self._portal.call(self._as_admin, lambda admin: admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    def left_open(self, url: str) -> list[str]:
        """What the connections are doing that are still open to that database after a grace period."""
        return self._portal.call(self._as_admin, lambda admin: _clients_after_grace(admin, database_of(url)))

    def drop_template(self) -> None:
        self._portal.call(self._as_admin, self._drop_template)

    async def _as_admin(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """A connection for each piece of work: a kept one would not survive a server that a test restarts."""
        admin = await asyncpg.connect(self._admin_url)
        try:
            return await work(admin)
        finally:
            await admin.close()

    async def _make_template(self, admin: asyncpg.Connection) -> None:
        await admin.execute("SELECT pg_advisory_lock($1)", TEMPLATE_LOCK)
        # Marked as a template last, so that a half-migrated one is seen and made again.
        done = await admin.fetchval("SELECT datistemplate FROM pg_database WHERE datname = $1", self._template)
        if done:
            return
        await admin.execute(f"DROP DATABASE IF EXISTS {self._template} WITH (FORCE)")
        await admin.execute(f"CREATE DATABASE {self._template} TEMPLATE template0")
        await _migrate(in_database(self._admin_url, self._template))
        await admin.execute(f"ALTER DATABASE {self._template} IS_TEMPLATE true ALLOW_CONNECTIONS false")

    async def _drop_template(self, admin: asyncpg.Connection) -> None:
        there = await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", self._template)
        if there:
            await admin.execute(f"ALTER DATABASE {self._template} IS_TEMPLATE false")
            await admin.execute(f"DROP DATABASE {self._template} WITH (FORCE)")


async def make_migrated(admin_url: str) -> str:
    """A new database with the project's tables, for a server of a test's own; nobody drops it."""
    name = f"outlive_test_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(admin_url)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
    finally:
        await admin.close()
    url = in_database(admin_url, name)
    await _migrate(url)
    return url


async def _migrate(url: str) -> None:
    # Imported here: what tests the support itself runs without the project's tables.
    from schema.migrate import migrate

    await migrate(url)


async def _clients_after_grace(admin: asyncpg.Connection, name: str) -> list[str]:
    async def none_left() -> bool:
        return not await admin.fetch(_CLIENTS, name)

    try:
        await until(none_left, BACKENDS_END_WITHIN_S)
    except NeverHappened:
        return [row[0] for row in await admin.fetch(_CLIENTS, name)]
    return []
