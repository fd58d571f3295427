"""`python web-demo`: the whole of Outlive on this machine, until Ctrl-C.

PostgreSQL (the embedded one, unless DATABASE_URL names another), one gateway that serves the page, two workers.
It starts processes and imports none of their insides. However it ends, they end: Ctrl-C stops them in order; after
kill -9 the leash ends gateway and workers, and PostgreSQL stops because the pipe from here has closed.
"""

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import click
from anyio.abc import TaskStatus
from crew import ChildEnded, Crew
from knock import can_take_jobs
from scripted import SCRIPTED_SAYS, ProvidersUnreadable, write_providers

ROOT = Path(__file__).resolve().parent.parent
WORKERS = ("worker 1", "worker 2")
READY_SECONDS = 60.0
PORT_WAIT_SECONDS = 2.0  # a gateway that was killed a moment ago may still hold its port
STOP_MARGIN_SECONDS = 5.0  # over the grace that each process keeps by itself


@dataclass(frozen=True, slots=True)
class Settings:
    """What the demo was asked for."""

    directory: Path
    database_url: str | None
    secret: str | None
    host: str
    port: int
    admin_port: int | None
    grace_seconds: float


class Taken(click.ClickException):
    """Something that one demo needs for itself is in use; the message says by whom and what to do."""


@click.command(context_settings={"show_default": True})
@click.option(
    "--directory",
    envvar="OUTLIVE_EMBEDDED_DIR",
    show_envvar=True,
    default=".outlive/pg",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the embedded PostgreSQL and the secret are kept.",
)
@click.option("--database-url", envvar="DATABASE_URL", show_envvar=True, help="Another PostgreSQL, 15 to 18.")
@click.option("--secret", envvar="OUTLIVE_SECRET", show_envvar=True, help="Signs tokens; else one is made and kept.")
@click.option("--host", envvar="OUTLIVE_HOST", show_envvar=True, default="127.0.0.1", help="A loopback address.")
@click.option(
    "--port",
    envvar="OUTLIVE_PORT",
    show_envvar=True,
    default=8080,
    type=click.IntRange(0, 65_535),
    help="Of the page; 0 picks a free one.",
)
@click.option(
    "--admin-port",
    envvar="OUTLIVE_ADMIN_PORT",
    show_envvar=True,
    show_default=False,
    type=click.IntRange(0, 65_535),
    help="Of /metrics [default: the one after the page's where that is free; 0 picks a free one].",
)
@click.option(
    "--grace-seconds",
    envvar="OUTLIVE_GRACE_SECONDS",
    show_envvar=True,
    default=30.0,
    type=click.FloatRange(2, 3600),
    help="How long a process may take to stop.",
)
def main(**options: object) -> None:
    """Runs Outlive on this machine: PostgreSQL, one gateway with the page, two workers. Ctrl-C stops it."""
    settings = Settings(**options)  # type: ignore[arg-type]
    settings.directory.mkdir(parents=True, exist_ok=True)
    lock = _lock(settings.directory / "runner.lock")
    port = _port(settings)
    address = f"http://{_for_url(settings.host)}:{port}"
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()}, its page is {address}".encode(), 0)
    try:
        anyio.run(_demo, settings, address, _environment(settings, port))
    except ChildEnded as error:
        raise click.ClickException(str(error)) from error
    finally:
        os.ftruncate(lock, 0)


def _lock(path: Path) -> int:
    """Held until this process is gone, however it goes."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.pread(lock, 200, 0).decode() or "another process"
        raise Taken(
            f"the demo of {path.parent} already runs ({other}). Use that one, or stop it first with Ctrl-C."
        ) from None
    return lock


def _port(settings: Settings) -> int:
    """The page's port, free a moment ago; for 0 one that the system picks."""
    if settings.port == 0:
        with socket.create_server((settings.host, 0), family=_family(settings.host)) as picked:
            port: int = picked.getsockname()[1]
            return port
    deadline = time.monotonic() + PORT_WAIT_SECONDS
    while not _is_free(settings.host, settings.port):
        if time.monotonic() > deadline:
            raise Taken(
                f"port {settings.port} of {settings.host} is taken by another program. Stop that, or choose another "
                "as in: OUTLIVE_PORT=9000 make demo (0 picks a free one)."
            )
        time.sleep(0.1)
    return settings.port


def _admin_port(settings: Settings) -> int:
    """Nobody asked for it, so a page that could be served is not kept from it by a port that is taken."""
    if settings.admin_port is not None:
        return settings.admin_port
    port = settings.port + 1
    return port if 1 < port <= 65_535 and _is_free(settings.host, port) else 0


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _environment(settings: Settings, port: int) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "OUTLIVE_LOG": "text" if sys.stdout.isatty() else "json",
        # The workers would all take the one that is meant for the gateway.
        **{name: value for name, value in os.environ.items() if name != "OUTLIVE_ADMIN_PORT"},
        "PYTHONPATH": os.pathsep.join(paths),
        "OUTLIVE_EMBEDDED_DIR": str(settings.directory.absolute()),
        "OUTLIVE_SECRET": settings.secret or _kept_secret(settings.directory / "secret"),
        "OUTLIVE_HOST": settings.host,
        "OUTLIVE_PORT": str(port),
        "OUTLIVE_GRACE_SECONDS": f"{settings.grace_seconds:g}",
        "OUTLIVE_DEMO": "1",
    }


def _kept_secret(path: Path) -> str:
    """One secret for all demos of this directory, so that a link from yesterday still opens today."""
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as aside:  # nobody else may read it: mode 0600
            aside.write(secrets.token_hex(32) + "\n")
            aside.flush()
            with contextlib.suppress(FileExistsError):
                os.link(aside.name, path)  # a gateway started by hand may have been first
    return path.read_text().strip()


async def _demo(settings: Settings, address: str, environment: dict[str, str]) -> None:
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        crew = Crew(tasks, settings.grace_seconds + STOP_MARGIN_SECONDS)
        crew.environment = environment
        # Before anything is said or started: a Ctrl-C that comes earlier ends Python's way, or is lost where whoever
        # started us had it ignored, as a shell does for what it runs in the background.
        await tasks.start(_obey_signals, crew)
        try:
            with crew.scope:
                await _start(crew, settings, address)
                await anyio.sleep_forever()
        except ProvidersUnreadable as error:
            failure = click.ClickException(str(error))
        except (ChildEnded, click.ClickException) as error:
            failure = error
        finally:
            with anyio.CancelScope(shield=True):
                await crew.stop(["gateway"], WORKERS, ["provider"], ["postgres"])
            tasks.cancel_scope.cancel()
    if failure := crew.ended or failure:
        raise failure
    print("Everything is stopped. `make demo` goes on with the same jobs.", flush=True)


async def _obey_signals(crew: Crew, *, task_status: TaskStatus[None]) -> None:
    obeyed = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup wants us to stay
        obeyed.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*obeyed) as signals:
        task_status.started()
        async for _ in signals:
            if crew.scope.cancel_called:
                crew.hurry()
            else:
                print("\nStopping; once more to be quick about it.", flush=True)
                crew.scope.cancel()


async def _start(crew: Crew, settings: Settings, address: str) -> None:
    if settings.database_url is None:
        print("Starting PostgreSQL.", flush=True)
        holding = ("--hold", str(settings.directory.absolute()))
        url = await crew.hold("postgres", "schema.embedded", *holding, answer="postgresql://")
        crew.environment["DATABASE_URL"] = url
    await crew.run("schema", "schema", "migrate")
    print("Starting one gateway and two workers.", flush=True)
    said = await crew.lead("provider", "scripted_provider", "--port", "0", answer=SCRIPTED_SAYS)
    providers = write_providers(settings.directory, said.removeprefix(SCRIPTED_SAYS), os.environ)
    crew.environment["OUTLIVE_PROVIDERS"] = str(providers)
    await crew.start("gateway", "gateway", OUTLIVE_ADMIN_PORT=str(_admin_port(settings)))
    for name in WORKERS:
        await crew.start(name, "worker")
    await _ready(settings.host, int(crew.environment["OUTLIVE_PORT"]))
    print(f"\n    Outlive is ready:  {address}/\n    Ctrl-C stops it.\n", flush=True)


async def _ready(host: str, port: int) -> None:
    """Waits until a job can be sent to the page's server; a process that ends first ends the wait."""
    deadline = anyio.current_time() + READY_SECONDS
    while not await anyio.to_thread.run_sync(can_take_jobs, host, port, abandon_on_cancel=True):
        if anyio.current_time() > deadline:
            raise click.ClickException(f"nothing took jobs after {READY_SECONDS:g} s; the lines above say why.")
        await anyio.sleep(0.1)


if __name__ == "__main__":
    main()
