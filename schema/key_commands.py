"""`python -m schema key`."""

from functools import partial
from typing import Any

import click

from schema import tenants
from schema.command_line import ready_database, run
from schema.database import DatabaseSettings
from schema.settings import database_options


@click.group()
def key() -> None:
    """API keys, by which a back end calls for its tenant."""


@key.command("add")
@click.argument("tenant_name", metavar="TENANT")
@click.option("--label", default="", help="What it is for, in your words.")
@click.option("--operator", is_flag=True, help="Sees all tenants in lists and statistics.")
@database_options
def key_add(tenant_name: str, label: str, operator: bool, **database: Any) -> None:
    """Make a key and print it once, alone on the last line."""
    run(database, partial(_key_add, name=tenant_name, label=label, operator=operator))


async def _key_add(settings: DatabaseSettings, name: str, label: str, operator: bool) -> int:
    async with ready_database(settings) as database:
        owner = await tenants.find_tenant(database, name)
        print(await tenants.add_key(database, owner, label, is_operator=operator))
    return 0


@key.command("list")
@click.argument("tenant_name", metavar="TENANT")
@database_options
def key_list(tenant_name: str, **database: Any) -> None:
    """Show a tenant's keys, without the keys."""
    run(database, partial(_key_list, name=tenant_name))


async def _key_list(settings: DatabaseSettings, name: str) -> int:
    async with ready_database(settings) as database:
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
    run(database, partial(_key_revoke, key_id=key_id))


async def _key_revoke(settings: DatabaseSettings, key_id: str) -> int:
    async with ready_database(settings) as database:
        await tenants.revoke_key(database, key_id)
    print("revoked; its streams end within a minute")
    return 0
