"""What the commands of `python -m schema` have in common."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import click

from schema import migrate
from schema.database import Database, DatabaseSettings
from schema.errors import OutliveError
from schema.settings import database_settings


def run(database: dict[str, Any], work: Callable[[DatabaseSettings], Awaitable[int]]) -> None:
    """Run `work` and exit with what it returns; an error of ours becomes one sentence and exit code 1."""
    try:
        with database_settings(**database) as settings:
            code = anyio.run(work, settings)
    except OutliveError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)


@asynccontextmanager
async def ready_database(settings: DatabaseSettings) -> AsyncIterator[Database]:
    """The database, with tables that fit this version. Raises SchemaNotReady, SchemaTooNew."""
    migrate.check_version(await migrate.version(settings.direct_url))
    async with Database.open(settings) as database:
        yield database
