"""Migrations are boring: any number at once, never edited, and partitions are there before they are needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import anyio
import asyncpg
import pytest

from schema import migrate as migrating
from schema.database import Database
from schema.errors import MigrationChanged, SchemaNotReady, SchemaTooNew
from schema.job_ids import first_id_of
from schema.migrate import NEEDED_VERSION, NEWEST_VERSION, check_version, migrate, migrations, version
from schema.partitions import WEEK, make_partitions, missing_partitions
from tests.support.jobs import connected, locked, waits_for_a_lock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

_INSERT = "INSERT INTO outlive.job_events (job_id, seq, kind, attempt, data) VALUES ($1, 1, 'chunk', 0, '')"
_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outlive.job_events'::regclass"
# A Wednesday; the year changes three weeks later, in the middle of a week.
DECEMBER = datetime(2031, 12, 10, 13, 5, tzinfo=UTC)


async def test_five_migrators_at_once_apply_each_file_once(empty_database_url: str) -> None:
    done: list[int] = []

    async def one() -> None:
        done.extend(each.number for each in await migrate(empty_database_url))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    assert sorted(done) == list(range(1, NEWEST_VERSION + 1))
    assert await version(empty_database_url) == NEWEST_VERSION


async def test_a_database_that_knows_nothing_of_us_has_version_0(empty_database_url: str) -> None:
    assert await version(empty_database_url) == 0


async def test_an_edited_migration_is_refused_and_nothing_is_applied(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrations()[0]
    (tmp_path / f"0001_{first.name}.pre.sql").write_text(first.text + "-- edited\n")
    (tmp_path / "0002_more.pre.sql").write_text("CREATE TABLE outlive.more ();")
    monkeypatch.setattr(migrating, "_FOLDER", tmp_path)
    with pytest.raises(MigrationChanged) as refused:
        await migrate(database_url)
    assert refused.value.number == 1
    async with connected(database_url) as connection:
        assert await connection.fetchval("SELECT to_regclass('outlive.more')") is None


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrations()[0]
    (tmp_path / f"0001_{first.name}.pre.sql").write_text(first.text)
    (tmp_path / "0002_half.pre.sql").write_text("CREATE TABLE outlive.half (); SELECT 1 / 0;")
    monkeypatch.setattr(migrating, "_FOLDER", tmp_path)
    with pytest.raises(Exception, match="SQLSTATE 22012"):
        await migrate(empty_database_url)
    async with connected(empty_database_url) as connection:
        assert await connection.fetchval("SELECT to_regclass('outlive.half')") is None
    assert await version(empty_database_url) == 1


def test_versions_outside_of_the_range_are_refused_with_what_to_do() -> None:
    check_version(NEEDED_VERSION)
    check_version(NEWEST_VERSION)
    with pytest.raises(SchemaNotReady, match="schema migrate"):
        check_version(NEEDED_VERSION - 1)
    with pytest.raises(SchemaTooNew, match="newer version"):
        check_version(NEWEST_VERSION + 1)


@pytest.mark.parametrize("names", [["0002_a.pre.sql"], ["0001_a.pre.sql", "0001_b.pre.sql"], ["1_a.sql"]])
def test_numbers_without_gap_or_double(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    monkeypatch.setattr(migrating, "_FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"number|name it"):
        migrations()


async def test_a_migrated_database_takes_events_of_now_and_of_the_coming_weeks(database: Database) -> None:
    assert await missing_partitions(database) == []
    for weeks in range(-1, 5):
        await database.execute(_INSERT, first_id_of(datetime.now(UTC) + weeks * WEEK))


@pytest.mark.parametrize(
    "moment",
    [
        DECEMBER,
        datetime(2031, 12, 14, 23, 59, 59, 999_000, tzinfo=UTC),  # the last millisecond of a week
        datetime(2031, 12, 15, tzinfo=UTC),  # the first of the next
        datetime(2032, 1, 1, tzinfo=UTC),
        datetime(2032, 2, 29, 12, tzinfo=UTC),
        datetime(2031, 12, 15, 1, tzinfo=timezone(timedelta(hours=5))),  # Monday there, Sunday in UTC
        datetime(2031, 12, 14, 22, tzinfo=timezone(timedelta(hours=-5))),  # Sunday there, Monday in UTC
    ],
)
async def test_partitions_made_at_any_moment_join_without_a_gap(database: Database, moment: datetime) -> None:
    assert len(await make_partitions(database, moment)) == 6
    assert await make_partitions(database, moment) == []
    step = timedelta(hours=12)
    for number in range(-13, 4 * 14 + 1):
        await database.execute(_INSERT, first_id_of(moment + number * step))
    names = [row[0] for row in await database.fetch(_PARTITIONS)]
    assert "outlive.job_events_20311229" in names or moment.month == 2


async def test_partitions_of_the_next_week_are_one_more(database: Database) -> None:
    await make_partitions(database, DECEMBER)
    assert await missing_partitions(database, DECEMBER + WEEK) == ["job_events_20320112"]
    assert await make_partitions(database, DECEMBER + WEEK) == ["job_events_20320112"]


async def test_many_workers_make_the_same_partition_at_once(database: Database) -> None:
    """They all look once an hour, so on the first hour of a week they meet."""
    made: list[str] = []

    async def one() -> None:
        made.extend(await make_partitions(database, DECEMBER))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert len(made) == len(set(made)) == 6


async def test_a_new_partition_waits_for_no_open_writer(database: Database, database_url: str) -> None:
    """An open transaction that wrote events holds locks on the table and on its partition."""
    async with locked(database_url, _INSERT, first_id_of(datetime.now(UTC))):
        with anyio.fail_after(2):
            assert len(await make_partitions(database, DECEMBER)) == 6


async def test_a_new_partition_holds_up_no_writer(database: Database, database_url: str) -> None:
    """The maker's transaction is still open; a writer does not wait for its end."""
    async with connected(database_url) as maker:
        transaction = maker.transaction()
        await transaction.start()
        await make_partitions(maker, DECEMBER)
        with anyio.fail_after(2):
            await database.execute(_INSERT, first_id_of(datetime.now(UTC)))
        await transaction.commit()


async def test_why_like_and_attach(database: Database, database_url: str) -> None:
    """The short form, PARTITION OF, does wait for an open writer: the tests above are not vacuous."""
    low, high = first_id_of(DECEMBER), first_id_of(DECEMBER + WEEK)
    short = f"CREATE TABLE outlive.short PARTITION OF outlive.job_events FOR VALUES FROM ('{low}') TO ('{high}')"
    async with (
        connected(database_url) as maker,
        anyio.create_task_group() as tasks,
        locked(database_url, _INSERT, first_id_of(datetime.now(UTC))),
    ):
        tasks.start_soon(partial(maker.execute, short))
        await until(lambda: waits_for_a_lock(database, "outlive.short"))


async def test_an_event_without_its_week_is_refused(database_url: str) -> None:
    """There is no default partition to hide in."""
    async with connected(database_url) as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="no partition"):
            await connection.execute(_INSERT, first_id_of(datetime(2040, 1, 1, tzinfo=UTC)))
