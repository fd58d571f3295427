"""The fixtures that all database tests stand on."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support.api import make_key
from tests.support.databases import Databases, database_of, in_database, make_migrated
from tests.support.postgres import DurablePostgres

pytestmark = pytest.mark.anyio


async def _connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url)


def test_an_address_keeps_its_server_and_changes_its_database() -> None:
    assert in_database("postgresql://me:pw@db:5432/postgres?ssl=off", "x") == "postgresql://me:pw@db:5432/x?ssl=off"
    assert in_database("postgresql://postgres:@/postgres?host=/tmp/a", "x") == "postgresql://postgres:@/x?host=/tmp/a"
    assert database_of("postgresql://postgres:@/x?host=/tmp/a") == "x"


async def test_a_fresh_database_is_empty_and_takes_listeners(empty_database_url: str) -> None:
    connection = await _connect(empty_database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        assert await connection.fetchval("SELECT current_database()") == database_of(empty_database_url)
    finally:
        await connection.close()


async def test_a_migrated_database_has_the_tables_and_takes_a_tenant(database_url: str) -> None:
    key = await make_key(database_url)
    connection = await _connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM outlive.ai_jobs") == 0
        assert await connection.fetchval("SELECT array_agg(name) FROM outlive.tenants") == ["acme"]
    finally:
        await connection.close()
    assert len(key) > 32


async def test_a_server_of_ones_own_has_the_tables_after_a_crash(durable_postgres: DurablePostgres) -> None:
    url = await make_migrated(durable_postgres.url)
    key = await make_key(url, "first")
    await durable_postgres.restart("kill")
    assert await make_key(url, "second") != key


async def test_a_connection_left_open_is_named(databases: Databases) -> None:
    url = databases.create(migrated=False)
    connection = await asyncpg.connect(url, server_settings={"application_name": "leaker"})
    try:
        assert [line.split(",")[0] for line in databases.left_open(url)] == ["leaker"]
    finally:
        await connection.close()
    assert databases.left_open(url) == []
    databases.drop(url)


@pytest.mark.parametrize("how", ["immediate", "kill"])
async def test_a_durable_server_keeps_what_was_committed(durable_postgres: DurablePostgres, how: str) -> None:
    first = await _connect(durable_postgres.url)
    assert await first.fetchval("SHOW fsync") == "on"
    await first.execute("CREATE TABLE kept AS SELECT 1 AS n")
    before = durable_postgres.url

    await durable_postgres.restart(how)  # type: ignore[arg-type]

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await first.fetchval("SELECT 1")
    first.terminate()
    assert durable_postgres.url == before
    again = await _connect(durable_postgres.url)
    assert await again.fetchval("SELECT n FROM kept") == 1
    await again.close()
