"""The worker's settings, as options of its command; each can be given by its environment variable."""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _own_name() -> str:
    """Says where to look; the random end keeps two lives of one process id apart."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the worker was asked to be; times in seconds."""

    lease_s: float = 60
    concurrency: int = 16
    grace_s: float = 30
    host: str = "127.0.0.1"
    admin_port: int | None = None
    name: str = field(default_factory=_own_name)


def worker_options(command: _Command) -> _Command:
    """Add the worker's own options."""
    for option in (
        click.option(
            "--lease-seconds",
            envvar="OUTLIVE_LEASE_SECONDS",
            type=click.FloatRange(1, 3600),
            default=60.0,
            show_default=True,
            show_envvar=True,
            help="After so long without a heartbeat another worker takes a run over.",
        ),
        click.option(
            "--concurrency",
            envvar="OUTLIVE_CONCURRENCY",
            type=click.IntRange(1, 10_000),
            default=16,
            show_default=True,
            show_envvar=True,
            help="Runs at once.",
        ),
        click.option(
            "--grace-seconds",
            envvar="OUTLIVE_GRACE_SECONDS",
            type=click.FloatRange(2, 3600),
            default=30.0,
            show_default=True,
            show_envvar=True,
            help="The whole time for a stop.",
        ),
        click.option(
            "--admin-port",
            envvar="OUTLIVE_ADMIN_PORT",
            type=click.IntRange(0, 65_535),
            show_envvar=True,
            help="For /metrics, /livez and /readyz; 0 picks a free one and prints it [default: none].",
        ),
        click.option(
            "--host",
            envvar="OUTLIVE_HOST",
            default="127.0.0.1",
            show_default=True,
            show_envvar=True,
            help="The address of the admin port.",
        ),
        click.option(
            "--providers",
            envvar="OUTLIVE_PROVIDERS",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            show_envvar=True,
            help="The providers file [default: what is built in].",
        ),
        click.option(
            "--handlers",
            multiple=True,
            metavar="MODULE_OR_FILE",
            help="Kinds of your own; may be given several times.",
        ),
        click.option(
            "--log",
            envvar="OUTLIVE_LOG",
            type=click.Choice(["text", "json"]),
            show_envvar=True,
            help="How the log is written [default: text on a terminal, else json].",
        ),
    ):
        command = option(command)
    return command
