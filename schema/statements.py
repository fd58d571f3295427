"""The named SQL statements of `sql/*.sql`, read once; a doubled name fails at import.

A file is a run of blocks, each `-- name: NAME`, then comment lines that say what it does and what `$n` are,
then one statement.
"""

import re
from collections.abc import Iterator
from pathlib import Path

_HEADER = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)
_FOLDER = Path(__file__).parent / "sql"


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, statement) of one file; text before the first name is its introduction."""
    _, *parts = _HEADER.split(text)
    yield from zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True)


def _read(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        for name, statement in _blocks(path.read_text("utf-8")):
            if name in found:
                raise LookupError(f"{path.name}: a statement named {name} exists already; rename one")
            found[name] = statement
    return found


_STATEMENTS = _read(_FOLDER)


def statement(name: str) -> str:
    """The SQL text named `name`. Raises LookupError at import time of the caller, not at its first use."""
    try:
        return _STATEMENTS[name]
    except KeyError:
        raise LookupError(f"no statement is named {name} in {_FOLDER.name}/*.sql") from None
