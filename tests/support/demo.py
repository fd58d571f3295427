"""`python web-demo`, as `make demo` runs it: a real runner with all its processes, and none of them left behind."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.support.postgres import ROOT
from tests.support.waiting import until

READY_WITHIN_S = 50.0
STOPPED_WITHIN_S = 50.0
KILLED_WITHIN_S = 10.0
PIPE_BYTES = 4096
# Whoever runs the tests may have these ignored too, as nohup and a script's background do.
LAUNCH = """\
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN if number in eval(sys.argv[1]) else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Demo:
    """One run of the demo on a free port, with its data in `directory`."""

    def __init__(
        self, directory: Path, *, ignoring: Sequence[signal.Signals] = (), mute: bool = False, **environment: str
    ) -> None:
        """`ignoring` are the signals that it is started with ignored; `mute` blocks its first line until `listen`."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OUTLIVE_", "DATABASE_URL"))
        }
        readable, writable = os.pipe()
        if mute:
            os.write(writable, b"\n" * fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, PIPE_BYTES))
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCH, repr([*map(int, ignoring)]), sys.executable, "web-demo"],
            cwd=ROOT,
            env={**kept, "OUTLIVE_EMBEDDED_DIR": str(directory), "OUTLIVE_PORT": "0", **environment},
            stdout=writable,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(writable)
        self.lines: list[str] = []
        self._output = os.fdopen(readable)
        self._reader = threading.Thread(target=lambda: self.lines.extend(self._output))
        if not mute:
            self.listen()

    def listen(self) -> None:
        """Reads what it says, until its end."""
        self._reader.start()

    @property
    def said(self) -> str:
        return "".join(self.lines).lstrip()

    async def says(self, words: str) -> None:
        await until(lambda: words in self.said or self.process.poll() is not None, READY_WITHIN_S, what=words)
        assert words in self.said, self.said

    async def ready(self) -> tuple[str, int]:
        await self.says("is ready")
        found = re.search(r"is ready: +http://([0-9.]+):([0-9]+)/", self.said)
        assert found, self.said
        return found[1], int(found[2])

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None, STOPPED_WITHIN_S, what=f"the end of {self.said!r}")
        self._reader.join(STOPPED_WITHIN_S)
        return self.process.wait()

    def close(self) -> None:
        """Ends it by force if a test has not; a Popen that is left running would fail some later test."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(KILLED_WITHIN_S)
        if self._reader.ident is not None:
            self._reader.join(KILLED_WITHIN_S)
        self._output.close()


class Demos:
    """The demos of one test, one after the other in the same folder."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="outlive-demo-"))
        self._place.chmod(0o755)
        self._demos: list[Demo] = []
        self.directory = self._place / "pg"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for demo in self._demos:
            demo.close()
        left = self.processes()
        for process in left:
            process.kill()
        psutil.wait_procs(left, KILLED_WITHIN_S)
        shutil.rmtree(self._place)

    def run(self, *, ignoring: Sequence[signal.Signals] = (), mute: bool = False, **environment: str) -> Demo:
        demo = Demo(self.directory, ignoring=ignoring, mute=mute, **environment)
        self._demos.append(demo)
        return demo

    def processes(self) -> list[psutil.Process]:
        """All live processes that were told of this folder."""
        return [process for process in psutil.process_iter() if speaks_of(process, str(self._place))]


def speaks_of(process: psutil.Process, folder: str) -> bool:
    try:
        told = [*process.cmdline(), process.environ().get("OUTLIVE_EMBEDDED_DIR", "")]
        return process.status() != psutil.STATUS_ZOMBIE and any(folder in word for word in told)
    except psutil.Error:
        return False
