"""`python -m schema`: migrations and administration."""

from functools import partial
from typing import Any

import anyio
import click

from schema import health, migrate, partitions
from schema.command_line import ready_database, run
from schema.database import DatabaseSettings
from schema.key_commands import key
from schema.limit_commands import limit
from schema.money_commands import money
from schema.settings import database_options
from schema.tenant_commands import tenant

# Partitions are weekly and made four weeks ahead; an hour between looks is plenty.
MAINTAIN_SECONDS = 3600


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Outlive's tables in PostgreSQL: make them, look after them, say who may call."""


for group in (tenant, key, limit, money):
    main.add_command(group)


@main.command("migrate")
@click.option("--phase", type=click.Choice(["pre", "post"]), help="Only what goes before or after a roll-out.")
@click.option("--sql", is_flag=True, help="Print the migrations instead, for a tool of your own.")
@database_options
def migrate_command(phase: migrate.Phase | None, sql: bool, **database: Any) -> None:
    """Bring the tables up to this version; safe with several at once."""
    if sql:
        for each in migrate.migrations():
            if phase in (None, each.phase):
                print(f"-- {each.number:04d}_{each.name}.{each.phase}.sql  sha256 {each.sha256}\n{each.text}")
        return
    run(database, partial(_migrate, phase=phase))


async def _migrate(settings: DatabaseSettings, phase: migrate.Phase | None) -> int:
    done = await migrate.migrate(settings.direct_url, phase)
    for each in done:
        print(f"applied {each.number:04d}_{each.name}.{each.phase}.sql")
    print(f"schema version {await migrate.version(settings.direct_url)} of {migrate.NEWEST_VERSION}")
    return 0


@main.command()
@database_options
def check(**database: Any) -> None:
    """Say in sentences what is wrong, if anything; exit code 1 then."""
    run(database, _check)


async def _check(settings: DatabaseSettings) -> int:
    findings = await health.examine(settings)
    for finding in findings:
        print(finding)
    return 1 if any(finding.is_fault for finding in findings) else 0


@main.command()
@click.option("--forever", is_flag=True, help="Go on, once an hour, until stopped.")
@database_options
def maintain(forever: bool, **database: Any) -> None:
    """Make the partitions of the coming weeks."""
    run(database, partial(_maintain, forever=forever))


async def _maintain(settings: DatabaseSettings, forever: bool) -> int:
    async with ready_database(settings) as database:
        while True:
            async with database.connection() as connection:
                for name in await partitions.make_partitions(connection):
                    print(f"made {name}", flush=True)
            if not forever:
                return 0
            await anyio.sleep(MAINTAIN_SECONDS)


if __name__ == "__main__":
    main(prog_name="python -m schema")
