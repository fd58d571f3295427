"""`python -m schema`: migrations and administration."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import click

from schema import health, migrate, partitions, tenants
from schema.database import Database, DatabaseSettings
from schema.errors import OutliveError
from schema.settings import database_options, database_settings

# Partitions are weekly and made four weeks ahead; an hour between looks is plenty.
MAINTAIN_SECONDS = 3600


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Outlive's tables in PostgreSQL: make them, look after them, say who may call."""


def _run(database: dict[str, Any], work: Callable[[DatabaseSettings], Awaitable[int]]) -> None:
    """Run `work` with the settings; our own errors become one sentence and exit code 1."""
    try:
        with database_settings(**database) as settings:
            code = anyio.run(work, settings)
    except OutliveError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)


@asynccontextmanager
async def _ready_database(settings: DatabaseSettings) -> AsyncIterator[Database]:
    migrate.check_version(await migrate.version(settings.direct_url))
    async with Database.open(settings) as database:
        yield database


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
    _run(database, partial(_migrate, phase=phase))


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
    _run(database, _check)


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
    _run(database, partial(_maintain, forever=forever))


async def _maintain(settings: DatabaseSettings, forever: bool) -> int:
    async with _ready_database(settings) as database:
        while True:
            async with database.connection() as connection:
                for name in await partitions.make_partitions(connection):
                    print(f"made {name}", flush=True)
            if not forever:
                return 0
            await anyio.sleep(MAINTAIN_SECONDS)


@main.group()
def tenant() -> None:
    """Who has jobs."""


@tenant.command("add")
@click.argument("name")
@database_options
def tenant_add(name: str, **database: Any) -> None:
    """Make a tenant."""
    _run(database, partial(_tenant_add, name=name))


async def _tenant_add(settings: DatabaseSettings, name: str) -> int:
    async with _ready_database(settings) as database:
        made = await tenants.add_tenant(database, name)
    print(f"{made.id}  {made.name}")
    return 0


@tenant.command("list")
@database_options
def tenant_list(**database: Any) -> None:
    """Show all tenants."""
    _run(database, _tenant_list)


async def _tenant_list(settings: DatabaseSettings) -> int:
    async with _ready_database(settings) as database:
        for each in await tenants.list_tenants(database):
            print(f"{each.id}  {each.name}  since {each.created_at:%Y-%m-%d}")
    return 0


@main.group()
def key() -> None:
    """API keys, by which a back end calls for its tenant."""


@key.command("add")
@click.argument("tenant_name", metavar="TENANT")
@click.option("--label", default="", help="What it is for, in your words.")
@click.option("--operator", is_flag=True, help="Sees all tenants in lists and statistics.")
@database_options
def key_add(tenant_name: str, label: str, operator: bool, **database: Any) -> None:
    """Make a key and print it once, alone on the last line."""
    _run(database, partial(_key_add, name=tenant_name, label=label, operator=operator))


async def _key_add(settings: DatabaseSettings, name: str, label: str, operator: bool) -> int:
    async with _ready_database(settings) as database:
        owner = await tenants.find_tenant(database, name)
        print(await tenants.add_key(database, owner, label, is_operator=operator))
    return 0


@key.command("list")
@click.argument("tenant_name", metavar="TENANT")
@database_options
def key_list(tenant_name: str, **database: Any) -> None:
    """Show a tenant's keys, without the keys."""
    _run(database, partial(_key_list, name=tenant_name))


async def _key_list(settings: DatabaseSettings, name: str) -> int:
    async with _ready_database(settings) as database:
        for each in await tenants.list_keys(database, await tenants.find_tenant(database, name)):
            state = f"revoked {each.revoked_at:%Y-%m-%d %H:%M}" if each.revoked_at else "open"
            role = "operator" if each.is_operator else "tenant"
            print(f"{each.id}  {role}  {state}  {each.label}")
    return 0


@key.command("revoke")
@click.argument("key_id")
@database_options
def key_revoke(key_id: str, **database: Any) -> None:
    """Close a key for good."""
    _run(database, partial(_key_revoke, key_id=key_id))


async def _key_revoke(settings: DatabaseSettings, key_id: str) -> int:
    async with _ready_database(settings) as database:
        await tenants.revoke_key(database, key_id)
    print("revoked; its streams end within a minute")
    return 0


if __name__ == "__main__":
    main(prog_name="python -m schema")
