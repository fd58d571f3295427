"""Every statement has one name, and PostgreSQL understands every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from schema.database import Database
from schema.statements import _STATEMENTS, _read, statement

pytestmark = pytest.mark.anyio


def test_a_doubled_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: twice\nSELECT 1\n")
    (tmp_path / "b.sql").write_text("-- name: twice\nSELECT 2\n")
    with pytest.raises(LookupError, match="twice"):
        _read(tmp_path)


def test_a_doubled_name_in_one_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- name: twice\nSELECT 1\n\n-- name: twice\nSELECT 2\n")
    with pytest.raises(LookupError, match="twice"):
        _read(tmp_path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LookupError, match="no_such_thing"):
        statement("no_such_thing")


def test_the_introduction_of_a_file_is_no_statement(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("What it is about.\n\n-- name: one\n-- Why.\nSELECT 1\n")
    assert _read(tmp_path) == {"one": "-- Why.\nSELECT 1"}


async def test_postgresql_can_prepare_every_statement(database: Database) -> None:
    """One sentence above each, too: a statement without one is not finished."""
    async with database.connection() as connection:
        for name, text in _STATEMENTS.items():
            assert text.startswith("-- "), name
            await connection.prepare(text)
