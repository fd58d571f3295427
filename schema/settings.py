"""The settings of PostgreSQL, as options of every command; each can be given by its environment variable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from schema.database import DatabaseSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

_POSTGRES_SCHEMES = ("postgres://", "postgresql://")


class PostgresUrl(click.ParamType[str]):
    """An address that the driver takes."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is no address of PostgreSQL, without repeating it: there may be a password in it."""
        if not str(value).startswith(_POSTGRES_SCHEMES):
            self.fail("it must start with postgresql:// or postgres://", param, ctx)
        return str(value)


def database_options(command: _Command) -> _Command:
    """Add the options that say where PostgreSQL is; the command gets them as `**database`."""
    for option in (
        click.option(
            "--pool-size",
            envvar="OUTLIVE_POOL_SIZE",
            type=click.IntRange(2, 1000),
            default=10,
            show_default=True,
            show_envvar=True,
            help="Connections of the pool; LISTEN and a worker's heartbeats come on top.",
        ),
        click.option(
            "--embedded-dir",
            envvar="OUTLIVE_EMBEDDED_DIR",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(".outlive/pg"),
            show_default=True,
            show_envvar=True,
            help="Where the embedded PostgreSQL of a development machine keeps its data.",
        ),
        click.option(
            "--direct-url",
            envvar="OUTLIVE_DIRECT_URL",
            type=PostgresUrl(),
            show_envvar=True,
            help="An address with no transaction pooler before it, for LISTEN [default: DATABASE_URL].",
        ),
        click.option(
            "--database-url",
            envvar="DATABASE_URL",
            type=PostgresUrl(),
            show_envvar=True,
            help="PostgreSQL 15 to 18 [default: an embedded one, for development].",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def database_settings(
    database_url: str | None, direct_url: str | None, embedded_dir: Path, pool_size: int
) -> Iterator[DatabaseSettings]:
    """The settings, with the embedded PostgreSQL running meanwhile where no address is given."""
    if database_url is not None:
        yield DatabaseSettings(database_url, direct_url or database_url, pool_size)
        return
    from schema.embedded import start_embedded  # an extra: not there beside a team's own PostgreSQL

    with start_embedded(embedded_dir) as embedded:
        yield DatabaseSettings(embedded.url, embedded.url, pool_size)
