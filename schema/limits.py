"""How much may run at once: of all, of one provider, of one tenant.

A limit is as many rows in `permits`, each with its holder; a claim takes one of every scope that its job is in, the
end of the run gives them back in its commit. No limit in a scope = none.
"""

import re
from dataclasses import dataclass

from schema.database import Database
from schema.errors import SettingInvalid
from schema.statements import statement
from schema.tenants import find_tenant

MOST = 10_000
_SCOPE = re.compile(r"global|(provider|tenant):[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Limit:
    """`most` runs at once in a scope, of which `held` are there; more than `most` right after it was lowered."""

    scope: str
    most: int
    by_operator: bool
    held: int


async def set_limit(database: Database, scope: str, most: int, *, by_operator: bool = True) -> None:
    """Let at most `most` run at once; what runs already counts, and is let end.

    One that is not an operator's changes nothing that an operator has set. Raises SettingInvalid, NoSuchTenant.
    """
    await _check(database, scope, most)
    async with database.transaction() as connection:
        await connection.fetch(statement("lock_limits"))
        if await connection.fetchrow(statement("set_limit"), scope, most, by_operator):
            await connection.fetch(statement("adopt_runs"), scope)
            await connection.fetch(statement("fit_permits"), scope)


async def remove_limit(database: Database, scope: str) -> bool:
    """Let as many run as there are; False where there was no limit."""
    async with database.transaction() as connection:
        await connection.fetch(statement("lock_limits"))
        await connection.fetch(statement("lock_permits"), scope)
        return await connection.fetchrow(statement("remove_limit"), scope) is not None


async def list_limits(database: Database) -> list[Limit]:
    """All, by scope."""
    return [Limit(**row) for row in await database.fetch(statement("list_limits"))]


async def fit_surplus(database: Database) -> list[str]:
    """After limits were lowered under what ran: let start again what has room again; returns those scopes."""
    scopes = [row["scope"] for row in await database.fetch(statement("surplus_scopes"))]
    for scope in scopes:
        async with database.transaction() as connection:
            await connection.fetch(statement("fit_permits"), scope)
    return scopes


async def _check(database: Database, scope: str, most: int) -> None:
    if not _SCOPE.fullmatch(scope):
        raise SettingInvalid(f"{scope!r} is no scope of a limit; use global, provider:NAME or tenant:NAME")
    if not 0 <= most <= MOST:
        raise SettingInvalid(f"a limit is 0 to {MOST}, not {most}; leave it out where there is none")
    kind, _, name = scope.partition(":")
    if kind == "tenant":
        await find_tenant(database, name)
