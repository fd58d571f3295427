"""A real process of the product: its environment, its log, its signals, and a bounded end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import Process

from tests.support.postgres import ROOT
from tests.support.waiting import until

# Python and our imports take 1 s on two free cores; other tests may hold those.
START_WITHIN_S = 30.0
# The product's own budget for shutting down is 30 s; a test asks for less through OUTLIVE_GRACE_SECONDS.
END_WITHIN_S = 35.0
_SHOWN_LOG_CHARS = 20_000
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV")


class ProcessFailed(AssertionError):
    """A process ended, or did not end, against what the test expected; the text holds the end of its log."""


class ServerProcess:
    """`python -m MODULE` with its output in `log`. Start it with `start`; leave it with `async with`.

    Nothing of the caller's environment reaches it but PATH and the like: a developer's own settings stay out.
    """

    def __init__(self, module: str, environment: Mapping[str, str], arguments: tuple[str, ...] = ()) -> None:
        self.module = module
        self.environment = dict(environment)
        self._arguments = arguments
        self._folder = Path(tempfile.mkdtemp(prefix=f"outlive-{module}-"))
        self.log = self._folder / "log"
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if self.runs:
                    await self.stop()
            finally:
                # pytest shows it beside a failure and hides it otherwise.
                print(f"--- log of {self.module}\n{self.log_text()[-_SHOWN_LOG_CHARS:]}")
                shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def launch(self) -> None:
        """Starts it, or starts it again; its log goes on."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        with self.log.open("ab") as log:
            self._process = await anyio.open_process(
                [sys.executable, "-m", self.module, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**inherited, "PYTHONUNBUFFERED": "1", **self.environment},
                start_new_session=True,
            )

    async def logs(self, text: str, within_s: float = START_WITHIN_S, *, after: int = 0) -> None:
        """Returns once the log holds `text` behind its first `after` characters. Raises ProcessFailed."""

        def seen() -> bool:
            if text in self.log_text()[after:]:
                return True
            self.expect_running()
            return False

        await until(seen, within_s, what=f"{text!r} in the log of {self.module}")

    def expect_running(self) -> None:
        if not self.runs:
            raise self._failed(f"ended by itself with {self._process and self._process.returncode}")

    async def wait(self, within_s: float = END_WITHIN_S) -> int:
        """Its exit code, negative where a signal ended it. Raises ProcessFailed if it does not end, and kills it."""
        assert self._process is not None, "start it first"
        with anyio.move_on_after(within_s):
            return await self._process.wait()
        self._process.kill()
        await self._process.wait()
        raise self._failed(f"did not end within {within_s:g} s")

    async def stop(self, within_s: float = END_WITHIN_S) -> int:
        """SIGTERM, and its exit code. A paused process goes on first, or it could not hear."""
        self.resume()
        self.send(signal.SIGTERM)
        return await self.wait(within_s)

    async def kill(self) -> None:
        """SIGKILL: what a crash does."""
        self.send(signal.SIGKILL)
        await self.wait()

    def pause(self) -> None:
        """SIGSTOP: what a stalled machine does."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, "start it first"
        if self.runs:
            os.kill(self._process.pid, number)

    def _failed(self, what: str) -> ProcessFailed:
        return ProcessFailed(f"{self.module} {what}; its log ends:\n{self.log_text()[-4000:]}")


@asynccontextmanager
async def run(module: str, environment: Mapping[str, str], *arguments: str) -> AsyncIterator[ServerProcess]:
    """A process that has been launched and ends with the block."""
    async with ServerProcess(module, environment, arguments) as process:
        await process.launch()
        yield process
