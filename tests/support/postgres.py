"""Embedded PostgreSQL servers for tests, each in a temporary folder and held by a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil
from anyio import to_thread

from tests.support.hold_postgres import ADDRESS_FILE
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]

# initdb and a first start take 1 to 2 s alone, and many times that on a machine that other tests keep busy.
START_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0


class PostgresDidNotStart(RuntimeError):
    """The embedded server did not come up; the text holds what its holder wrote."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens (`url`, of an administrator, database `postgres`) and its postmaster's pid."""

    url: str
    postmaster_pid: int


class HeldPostgres:
    """One server. `start` returns at once, `address` waits for it; `close` stops it and removes its folder.

    `fast`: without fsync, and gone with its folder even where pytest is killed. Otherwise durable, and the
    folder stays until `close`, so that it can be started again.
    """

    def __init__(self, *, fast: bool) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="outlive-pg-"))
        # The server runs as another user where the tests run as root, and has to get in.
        self.directory.chmod(0o755)
        self._fast = fast
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Does nothing where it was started before and not let go of."""
        if self._holder is not None:
            return
        (self.directory / ADDRESS_FILE).unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.support.hold_postgres", str(self.directory)]
        with (self.directory / "holder.log").open("ab") as log:
            # A session of its own: Ctrl-C reaches pytest, which then lets go of the pipe.
            self._holder = subprocess.Popen(
                command + ["--fast"] * self._fast,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def address(self) -> Address:
        return read_address(self.directory)

    def let_go(self) -> None:
        """Closes the holder's pipe and waits until it has stopped the server and ended."""
        if self._holder is None:
            return
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        try:
            self._holder.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        self._holder = None

    def close(self) -> None:
        self.let_go()
        shutil.rmtree(self.directory, ignore_errors=True)


def read_address(directory: Path) -> Address:
    """Waits for a holder's address file, also one that another process started.

    Raises PostgresDidNotStart with the holder's own words where it failed or took too long.
    """
    path = directory / ADDRESS_FILE
    ends_at = time.monotonic() + START_WITHIN_S
    while not path.exists():
        if time.monotonic() > ends_at:
            raise PostgresDidNotStart(f"no address within {START_WITHIN_S:g} s: {_log(directory)}")
        time.sleep(0.02)
    facts = json.loads(path.read_text())
    if "error" in facts:
        raise PostgresDidNotStart(facts["error"])
    return Address(**facts)


def _log(directory: Path) -> str:
    log = directory / "holder.log"
    return log.read_text(errors="replace")[-4000:] if log.exists() else "no log"


class DurablePostgres:
    """A private server with fsync on that a test stops, kills and starts again; the data and address stay.

    `url` is that of an administrator, database `postgres`.
    """

    def __init__(self) -> None:
        self._held = HeldPostgres(fast=False)
        self._address: Address | None = None

    @property
    def url(self) -> str:
        assert self._address is not None, "start it first"
        return self._address.url

    async def start(self) -> None:
        self._held.start()
        self._address = await to_thread.run_sync(self._held.address)

    async def stop(self, how: Literal["immediate", "fast", "kill"] = "immediate") -> None:
        """Stops the postmaster: without a checkpoint, in order, or by SIGKILL; returns when it is gone."""
        assert self._address is not None, "start it first"
        pid = self._address.postmaster_pid
        children = psutil.Process(pid).children()
        os.kill(pid, _STOP_SIGNALS[how])
        await until(partial(_all_gone, [pid, *(child.pid for child in children)]), STOP_WITHIN_S)

    async def restart(self, how: Literal["immediate", "fast", "kill"] = "immediate") -> None:
        await self.stop(how)
        await self.start_again()

    async def start_again(self) -> None:
        await to_thread.run_sync(self._held.let_go)
        await self.start()

    async def close(self) -> None:
        await to_thread.run_sync(self._held.close)


_STOP_SIGNALS = {"immediate": signal.SIGQUIT, "fast": signal.SIGINT, "kill": signal.SIGKILL}


def _all_gone(pids: list[int]) -> bool:
    return not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    """A zombie does not run: where nobody reaps orphans it stays for ever."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
