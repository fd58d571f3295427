"""Runs a command that ends when the demo does, even if the demo is killed with -9.

Usage: leash.py RUNNER_PID COMMAND...
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    runner, *command = sys.argv[1:]
    if sys.platform == "linux":
        # SIGKILL and not SIGTERM: PostgreSQL goes down at the same moment, so there is nothing left to hand back,
        # and a gateway that drains would hold the port against the next `make demo`.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(runner):
        sys.exit("the demo has ended")
    os.execv(command[0], command)  # noqa: S606  our own command, and no shell


main()
