"""`python -m schema`, as an operator types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import schema
from schema.database import Database, DatabaseSettings
from schema.tenants import find_key

ROOT = Path(__file__).resolve().parents[2]


def run(url: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schema", *words],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_package_is_ours_and_not_another_of_its_name() -> None:
    assert Path(schema.__file__).is_relative_to(ROOT)


def test_migrate_then_check_finds_nothing_wrong(empty_database_url: str) -> None:
    before = run(empty_database_url, "check")
    assert before.returncode == 1
    assert "run `python -m schema migrate`" in before.stdout
    migrated = run(empty_database_url, "migrate")
    assert migrated.returncode == 0, migrated.stderr
    assert "applied 0001_foundation.pre.sql" in migrated.stdout
    again = run(empty_database_url, "migrate")
    assert "applied" not in again.stdout
    # The tests' own server may run without fsync, which is the one thing that check has to say of it.
    faults = [line for line in run(empty_database_url, "check").stdout.splitlines() if line.startswith("fault")]
    assert all("a crash can take back" in fault for fault in faults), faults


def test_check_names_a_missing_partition(database_url: str) -> None:
    dropping = "import asyncio, asyncpg, sys\n" + (
        "async def go():\n"
        "    c = await asyncpg.connect(sys.argv[1])\n"
        "    row = await c.fetchrow(\"SELECT relname FROM pg_class WHERE relname ~ '^job_events_[0-9]+$' LIMIT 1\")\n"
        "    await c.execute('DROP TABLE outlive.' + row[0])\n"
        "    await c.close()\n"
        "asyncio.run(go())\n"
    )
    subprocess.run([sys.executable, "-c", dropping, database_url], check=True)
    assert "partitions are missing" in run(database_url, "check").stdout
    assert "made job_events_" in run(database_url, "maintain").stdout
    assert "partitions are missing" not in run(database_url, "check").stdout


def test_sql_is_printed_for_other_tools(empty_database_url: str) -> None:
    printed = run(empty_database_url, "migrate", "--sql")
    assert "CREATE TABLE outlive.ai_jobs" in printed.stdout
    assert run(empty_database_url, "check").returncode == 1, "printing applies nothing"


@pytest.mark.anyio
async def test_a_key_is_shown_once_and_opens_until_it_is_revoked(database_url: str) -> None:
    assert run(database_url, "tenant", "add", "acme").returncode == 0
    assert "acme" in run(database_url, "tenant", "list").stdout
    key = run(database_url, "key", "add", "acme", "--label", "ci").stdout.splitlines()[-1]
    listed = run(database_url, "key", "list", "acme").stdout
    assert key not in listed
    assert "ci" in listed
    async with Database.open(DatabaseSettings(database_url, database_url, 1)) as database:
        assert await find_key(database, key) is not None
        assert run(database_url, "key", "revoke", listed.split()[0]).returncode == 0
        assert await find_key(database, key) is None
    assert "revoked" in run(database_url, "key", "list", "acme").stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tenant", "add", "Not A Name"], "first a letter or digit"),
        (["key", "add", "nobody"], "no tenant is named 'nobody'"),
        (["key", "revoke", "nonsense"], "no key has the id"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(database_url: str, words: list[str], says: str) -> None:
    answer = run(database_url, *words)
    assert answer.returncode == 1
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_tenant_is_added_once(database_url: str) -> None:
    run(database_url, "tenant", "add", "acme")
    assert "a tenant named 'acme' exists" in run(database_url, "tenant", "add", "acme").stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DATABASE_URL", "mysql://x"), ("OUTLIVE_POOL_SIZE", "many"), ("OUTLIVE_DIRECT_URL", "here")],
)
def test_a_setting_that_does_not_fit_is_named(database_url: str, variable: str, value: str) -> None:
    answer = run(database_url, "tenant", "list", **{variable: value})
    assert answer.returncode == 2
    assert variable in answer.stderr


def test_an_unreachable_server_is_said_to_be_one(tmp_path: Path) -> None:
    answer = run(f"postgresql://postgres@/postgres?host={tmp_path}", "tenant", "list")
    assert answer.returncode == 1
    assert "PostgreSQL does not answer" in answer.stderr
