"""What PostgreSQL says becomes one of our three errors: come back later, somebody is at it, or never again."""

from __future__ import annotations

import anyio
import pytest

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused
from tests.support.jobs import a_job, a_tenant, connected, locked, opened, queued, waits_for_a_lock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

_LOCK = "SELECT 1 FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE"


async def test_a_server_that_is_stuck_is_unavailable(database: Database) -> None:
    """Its own statement_timeout comes before the driver's; both mean the same."""
    with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - the transaction is one thing
        async with database.transaction() as connection:
            await connection.execute("SET LOCAL statement_timeout = '20ms'")
            await connection.execute("SELECT pg_sleep(30)")
    assert await database.fetchval("SELECT 1") == 1


async def test_a_transaction_that_idled_too_long_is_unavailable(database: Database) -> None:
    async with connected(database.settings.url) as other:
        with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - the transaction is one thing
            async with database.transaction() as connection:
                pid = connection.get_server_pid()
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
                gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)"
                await until(lambda: other.fetchval(gone, pid))
                await connection.execute("SELECT 1")
    assert await database.fetchval("SELECT 1") == 1


async def test_a_session_that_was_ended_is_unavailable_and_replaced(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        await database.fetchval("SELECT pg_terminate_backend(pg_backend_pid())")
    assert await database.fetchval("SELECT 1") == 1


async def test_a_database_that_is_not_there_is_unavailable(database_url: str) -> None:
    async with opened(database_url.replace("outlive_test_", "outlive_gone_")) as database:
        with pytest.raises(DatabaseUnavailable):
            await database.fetchval("SELECT 1")


async def test_a_row_that_stays_locked_is_busy(database: Database, database_url: str) -> None:
    job_id = await queued(database)
    async with locked(database_url, _LOCK, job_id):
        with pytest.raises(DatabaseBusy):  # noqa: PT012 - the transaction is one thing
            async with database.transaction() as connection:
                await connection.execute("SET LOCAL lock_timeout = '20ms'")
                await connection.execute(_LOCK, job_id)


async def test_a_deadlock_is_busy(database: Database) -> None:
    """Nothing of the loser was written; a worker must not die of it."""
    first, second = await queued(database), await queued(database)
    errors: list[Exception] = []
    both = [anyio.Event(), anyio.Event()]

    async def cross(number: int) -> None:
        mine, other = (first, second) if number == 0 else (second, first)
        try:
            async with database.transaction() as connection:
                await connection.execute("SET LOCAL lock_timeout = 0")
                await connection.execute("SET LOCAL deadlock_timeout = '20ms'")
                await connection.execute(_LOCK, mine)
                both[number].set()
                await both[1 - number].wait()
                await connection.execute(_LOCK, other)
        except DatabaseBusy as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cross, 0)
        tasks.start_soon(cross, 1)
    assert len(errors) == 1


async def test_a_serialization_failure_is_busy(database: Database) -> None:
    job_id = await queued(database)
    touch = "UPDATE outlive.ai_jobs SET priority = priority + 1 WHERE id = $1"
    with pytest.raises(DatabaseBusy):  # noqa: PT012 - the transaction is one thing
        async with database.transaction() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await connection.execute("SELECT count(*) FROM outlive.ai_jobs")
            await database.execute(touch, job_id)
            await connection.execute(touch, job_id)


@pytest.mark.parametrize("text", ['"\x00 secret"', '"\ud800 secret"', "secret {"])
async def test_a_value_that_cannot_be_stored_is_refused_and_not_repeated(database: Database, text: str) -> None:
    """Neither in the message nor in what the error carries along."""
    with pytest.raises(WriteRefused) as refused:
        await queued(database, input_json=text)
    assert "secret" not in repr(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


async def test_a_pool_that_is_in_use_makes_others_wait(database_url: str) -> None:
    async with opened(database_url, 1) as database, anyio.create_task_group() as tasks, database.connection():
        tasks.start_soon(database.fetchval, "SELECT 1")
        await anyio.wait_all_tasks_blocked()


async def test_our_sessions_bound_what_they_may_take(database: Database) -> None:
    """A lock that we hold or wait for is never for ever."""
    names = (
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "default_transaction_isolation",
    )
    values = [await database.fetchval("SELECT current_setting($1)", name) for name in names]
    assert values == ["30s", "2s", "30s", "read committed"]


async def test_one_that_waits_for_a_lock_is_seen_to(database: Database, database_url: str) -> None:
    """The support's own look at locks, on which the races stand."""
    tenant = await a_tenant(database)
    new = a_job(tenant)
    assert not await waits_for_a_lock(database, "idempotency_key")
    async with locked(database_url, "LOCK TABLE outlive.tenants"), anyio.create_task_group() as tasks:
        tasks.start_soon(_swallow_busy, database, new.tenant_id)
        await until(lambda: waits_for_a_lock(database, "FROM outlive.tenants"))
        tasks.cancel_scope.cancel()


async def _swallow_busy(database: Database, tenant_id: object) -> None:
    await database.fetchval("SELECT name FROM outlive.tenants WHERE id = $1", tenant_id)
