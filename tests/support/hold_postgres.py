"""Holds an embedded PostgreSQL for as long as its standard input is open.

A process of its own, so that the server ends with the tests however they end: a killed pytest closes the
pipe. `python -m tests.support.hold_postgres DIRECTORY [--fast]` leaves the address in DIRECTORY/address.json.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from pathlib import Path

from schema.embedded import start_embedded

ADDRESS_FILE = "address.json"

# Durability is not under test on the shared server, and these make a fresh database per test cheap.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


def main(arguments: list[str]) -> None:
    """`--fast`: settings that do not survive a power cut, and the directory is removed at the end."""
    directory, fast = Path(arguments[0]), "--fast" in arguments
    try:
        _hold(directory, FAST if fast else {})
    except Exception:  # noqa: BLE001 - whatever it is, the tests waiting for an address must be told
        _publish(directory, {"error": traceback.format_exc()})
        sys.stdin.read()
    finally:
        if fast:
            shutil.rmtree(directory, ignore_errors=True)


def _hold(directory: Path, options: dict[str, str]) -> None:
    with start_embedded(directory / "pg", options) as server:
        _publish(directory, {"url": server.url, "postmaster_pid": server.pid})
        sys.stdin.read()


def _publish(directory: Path, facts: dict[str, object]) -> None:
    """In one step: a reader sees the whole file or none."""
    unfinished = directory / "address.unfinished"
    unfinished.write_text(json.dumps(facts))
    unfinished.rename(directory / ADDRESS_FILE)


if __name__ == "__main__":
    main(sys.argv[1:])
