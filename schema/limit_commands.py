"""`python -m schema limit`."""

from functools import partial
from typing import Any

import click

from schema import limits
from schema.command_line import ready_database, run
from schema.database import DatabaseSettings
from schema.settings import database_options

NO_LIMIT = "none"


class Most(click.ParamType[int | None]):
    """How many at once, or none for as many as there are."""

    name = "n|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Refuse what is neither."""
        if value is None or value == NO_LIMIT:
            return None
        return click.IntRange(0, limits.MOST).convert(value, param, ctx)


@click.group()
def limit() -> None:
    """How much may run at once: of all, of a provider, of a tenant."""


@limit.command("set")
@click.argument("scope")
@click.argument("most", type=Most(), metavar="N|none")
@database_options
def limit_set(scope: str, most: int | None, **database: Any) -> None:
    """Let at most N jobs run at once in SCOPE: global, provider:NAME or tenant:NAME.

    0 lets none start. What runs already is let end. "none" removes the limit; one from a providers file comes back
    when a worker with that file starts.
    """
    run(database, partial(_limit_set, scope=scope, most=most))


async def _limit_set(settings: DatabaseSettings, scope: str, most: int | None) -> int:
    async with ready_database(settings) as database:
        if most is None:
            there_was = await limits.remove_limit(database, scope)
            print(f"{scope}  no limit" if there_was else f"{scope} had no limit")
            return 0
        await limits.set_limit(database, scope, most)
    print(f"{scope}  {most}")
    return 0


@limit.command("list")
@database_options
def limit_list(**database: Any) -> None:
    """Show all limits, and how much of each is in use."""
    run(database, _limit_list)


async def _limit_list(settings: DatabaseSettings) -> int:
    async with ready_database(settings) as database:
        for each in await limits.list_limits(database):
            source = "set here" if each.by_operator else "from a providers file"
            print(f"{each.scope}  {each.most}  {each.held} running  {source}")
    return 0
