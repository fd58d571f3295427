"""The processes of the embedded PostgreSQL: making its cluster, finding, starting and ending its postmaster.

A postmaster.pid is believed only if that process works in this very folder. A zombie, another program with a
recycled number, or nothing at all leaves a stale file: it would give callers a dead address, and PostgreSQL
itself would refuse to start over it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import structlog

from schema.embedded_home import PORT, SOCKET_NAME, EmbeddedFailed, Home
from schema.program import ENVIRONMENT, run_program

MAJOR_VERSION = "18"
START_SECONDS = 60.0  # crash recovery of a gigabyte of WAL takes most of it on a slow disk
DEAF_SECONDS = 5.0  # a ready server answers in milliseconds; one whose socket was swept from /tmp never does
FAST_STOP_SECONDS = 20.0  # rolls back and writes a checkpoint
HARD_STOP_SECONDS = 5.0
POLL_SECONDS = 0.02
LOG_MAX_BYTES = 10_000_000
# What PostgreSQL says while a child of a killed postmaster still lives.
STILL_IN_USE = "pre-existing shared memory block"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A live postmaster as postmaster.pid describes it; `status` is `starting`, `ready` or `stopping`.

    `child` is there if this process started it, which then has to reap it too.
    """

    process: psutil.Process
    socket_directory: Path
    status: str
    child: subprocess.Popen[bytes] | None = None


def ensure_cluster(home: Home) -> None:
    """Makes the cluster if there is none: aside, then renamed, so that an interrupted one is made again.

    Raises EmbeddedFailed for a cluster of another major version, and where initdb fails.
    """
    version = home.data / "PG_VERSION"
    if version.exists():
        if (found := version.read_text().strip()) != MAJOR_VERSION:
            reason = f"was made by PostgreSQL {found}, this is {MAJOR_VERSION}; move {home.data} away"
            raise EmbeddedFailed(home.directory, reason)
        return
    aside = home.root / "data.new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    if home.run_as:
        os.chown(aside, home.run_as["user"], home.run_as["group"])
    _initdb(home, aside)
    try:
        aside.rename(home.data)
    except OSError as error:
        raise EmbeddedFailed(home.directory, f"finds other files in {home.data}; move them away") from error


def _initdb(home: Home, data: Path) -> None:
    # The builtin locale sorts the same on every machine and needs none of the system's.
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    trust = ["-U", "postgres", "--auth-local=trust", "--auth-host=reject"]
    done = run_program([home.programs / "initdb", "-D", data, *trust, *locale], home.run_as)
    if done.returncode != 0:
        raise EmbeddedFailed(home.directory, f"could not be made; initdb said: {done.stderr.strip()[-500:]}")


def attach(home: Home) -> Postmaster | None:
    """The running server once it answers, or None where there is none, with no stale postmaster.pid left."""
    deadline = time.monotonic() + START_SECONDS
    deaf_since: float | None = None
    while (found := running(home)) is not None:
        if _answers(home, found):
            return found
        now = time.monotonic()
        deaf_since = (deaf_since or now) if found.status == "ready" else None
        if now > deadline or (deaf_since is not None and now > deaf_since + DEAF_SECONDS):
            log.warning("embedded_postgres_deaf", pid=found.process.pid, status=found.status)
            stop(found, immediate=False)
        time.sleep(POLL_SECONDS)
    # PostgreSQL keeps a second file with its pid beside the socket, and would refuse to start over either.
    for stale in (home.data / "postmaster.pid", home.socket_directory / f"{SOCKET_NAME}.lock"):
        if stale.exists():
            log.warning("embedded_stale_pid", file=str(stale))
            stale.unlink(missing_ok=True)
    return None


def launch(home: Home, options: Mapping[str, str]) -> Postmaster:
    """Starts the server with these settings and waits until it answers; else EmbeddedFailed has its words."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        log_from = home.log_file.stat().st_size if home.log_file.exists() else 0
        if postmaster := _launch_once(home, options, deadline):
            return postmaster
        with home.log_file.open(errors="replace") as said:
            said.seek(log_from)
            words = said.read()[-800:].strip()
        if STILL_IN_USE not in words or time.monotonic() > deadline:
            raise EmbeddedFailed(home.directory, f"did not start; {home.log_file} ends with: {words}")
        time.sleep(10 * POLL_SECONDS)


def _launch_once(home: Home, options: Mapping[str, str], deadline: float) -> Postmaster | None:
    child = _spawn(home, options)
    try:
        while child.poll() is None and time.monotonic() < deadline:
            found = running(home)
            if found is not None and found.status == "ready" and _answers(home, found):
                return replace(found, child=child)
            time.sleep(POLL_SECONDS)
    except BaseException:
        _stop_child(home, child, immediate=False)
        raise
    _stop_child(home, child, immediate=True)
    return None


def _stop_child(home: Home, child: subprocess.Popen[bytes], *, immediate: bool) -> None:
    if child.poll() is None:
        process = psutil.Process(child.pid)
        stop(Postmaster(process, home.socket_directory, "starting", child), immediate=immediate)


def _spawn(home: Home, options: Mapping[str, str]) -> subprocess.Popen[bytes]:
    socket_directory = '"' + str(home.socket_directory).replace('"', '""') + '"'
    command = [str(home.programs / "postgres"), "-D", str(home.data), "-p", str(PORT), "-k", socket_directory]
    command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    too_long = home.log_file.exists() and home.log_file.stat().st_size > LOG_MAX_BYTES
    if too_long:
        home.log_file.unlink()
    with home.log_file.open("ab") as output:
        return subprocess.Popen(  # noqa: S603
            command,
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C in our terminal would be a fast shutdown to it, under everybody's feet.
            start_new_session=True,
            **home.run_as,
        )


def running(home: Home) -> Postmaster | None:
    """The postmaster of postmaster.pid; None if the file is missing or cut, or no such process lives."""
    try:
        lines = (home.data / "postmaster.pid").read_text().splitlines()
        process = psutil.Process(int(lines[0]))
        if not lives(process) or process.cwd() != str(home.data.resolve()):
            return None
        status = lines[7].strip() if len(lines) > 7 else "starting"
        return Postmaster(process, Path(lines[4]), status)
    except (FileNotFoundError, IndexError, ValueError, psutil.Error):
        return None


def _answers(home: Home, postmaster: Postmaster) -> bool:
    """Connects, and tells whether the server takes connections: only this proves its address alive."""
    address = ["-h", str(postmaster.socket_directory), "-p", str(PORT)]
    return run_program([home.programs / "pg_isready", "-q", "-t", "3", *address], home.run_as).returncode == 0


def lives(process: psutil.Process) -> bool:
    """Whether this very process runs: not gone, not its number's next user, not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop(postmaster: Postmaster, *, immediate: bool) -> None:
    """Ends a postmaster and waits for its end, 30 s at most.

    SIGINT rolls back and writes out, SIGQUIT (`immediate`) leaves both to the next start's recovery.
    """
    steps = [(signal.SIGQUIT, HARD_STOP_SECONDS), (signal.SIGKILL, HARD_STOP_SECONDS)]
    if not immediate:
        steps.insert(0, (signal.SIGINT, FAST_STOP_SECONDS))
    for number, seconds in steps:
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster.process.send_signal(number)
        if _ends_within(postmaster, seconds):
            return


def _ends_within(postmaster: Postmaster, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while lives(postmaster.process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    reap(postmaster)
    return True


def reap(postmaster: Postmaster) -> None:
    """Takes the zombie away if it is our child and has ended."""
    if postmaster.child:
        postmaster.child.poll()
