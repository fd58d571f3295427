"""Short programs of PostgreSQL and of the system, run under another account where we are root."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import TypedDict

# Nothing of ours: PGPORT, PGDATA or a missing locale would change what the programs do.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class RunAs(TypedDict, total=False):
    """Arguments of subprocess that drop root's rights; empty where there are none to drop."""

    user: int
    group: int
    extra_groups: list[int]


def run_program(command: Sequence[str | Path], run_as: RunAs) -> subprocess.CompletedProcess[str]:
    """Runs a short command under that account and returns what it said; OSError if it cannot be run.

    Interrupted, it kills the command with all that this has started: initdb alone would leave a server at work
    in the folder that the next start removes.
    """
    words = [str(word) for word in command]
    with subprocess.Popen(  # noqa: S603
        words, cwd="/", env=ENVIRONMENT, stdout=PIPE, stderr=PIPE, text=True, process_group=0, **run_as
    ) as program:
        try:
            said, complaint = program.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(words, program.returncode, said, complaint)
