"""`python -m schema money`."""

from typing import Any

import click

from schema import money as ledger
from schema.command_line import ready_database, run
from schema.database import DatabaseSettings
from schema.settings import database_options


@click.group()
def money() -> None:
    """What tenants reserved and were charged."""


@money.command()
@database_options
def check(**database: Any) -> None:
    """Compare ledger, accounts, reservations and jobs; exit code 1 where they differ."""
    run(database, _check)


async def _check(settings: DatabaseSettings) -> int:
    async with ready_database(settings) as database:
        findings = await ledger.check(database)
        totals = await ledger.totals(database)
    for finding in findings:
        print(finding)
    if not findings:
        print(f"ledger, accounts, reservations and jobs agree ({totals})")
    return 1 if findings else 0


@money.command()
@database_options
def rebuild(**database: Any) -> None:
    """Make the accounts anew from the ledger."""
    run(database, _rebuild)


async def _rebuild(settings: DatabaseSettings) -> int:
    async with ready_database(settings) as database:
        print(f"{await ledger.rebuild(database)} accounts made from the ledger")
    return 0
