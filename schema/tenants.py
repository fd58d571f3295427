"""Tenants and the API keys by which they call."""

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID, uuid4

from schema.database import Database
from schema.errors import NameTaken, NoSuchKey, NoSuchTenant, SettingInvalid
from schema.money import books_closed, rebuild_accounts
from schema.statements import statement

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# 32 random bytes, so that a plain SHA-256 is safe to store: there is nothing to guess.
_KEY_BYTES = 32
_KEY_PREFIX = "outlive_"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a tenant may have: its share of the starts, jobs that wait, and US dollars in all or a month (UTC)."""

    weight: int = 1
    max_queued: int | None = None
    quota_usd: Decimal | None = None
    quota_period: Literal["total", "month"] | None = None


_NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody who has jobs of his own."""

    id: UUID
    name: str
    created_at: datetime
    terms: Terms


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key; the key itself is shown once."""

    id: UUID
    tenant_id: UUID
    label: str
    is_operator: bool
    created_at: datetime
    revoked_at: datetime | None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


async def add_tenant(database: Database, name: str, terms: Terms = _NO_TERMS) -> Tenant:
    """Make a tenant. Raises SettingInvalid for a name of another form, NameTaken."""
    if not _NAME.fullmatch(name):
        raise SettingInvalid(
            f"{name!r} is no name for a tenant; use up to 63 of a-z, 0-9, '-' and '_', first a letter or digit"
        )
    if await database.fetchrow(statement("add_tenant"), uuid4(), name, *astuple(terms)) is None:
        raise NameTaken(name)
    return await find_tenant(database, name)


async def set_terms(database: Database, tenant: Tenant, terms: Terms) -> None:
    """Change what a tenant may have, from the next creation and the next claim on."""
    async with books_closed(database, tenant.id) as connection:
        await connection.fetch(statement("set_tenant"), tenant.id, *astuple(terms))
        await rebuild_accounts(connection, tenant.id)


async def find_tenant(database: Database, name: str) -> Tenant:
    """The tenant of this name. Raises NoSuchTenant."""
    row = await database.fetchrow(statement("find_tenant"), name)
    if row is None:
        raise NoSuchTenant(name)
    return _tenant(row)


async def get_tenant(database: Database, tenant_id: UUID) -> Tenant | None:
    """The tenant of this id, if any."""
    row = await database.fetchrow(statement("get_tenant"), tenant_id)
    return None if row is None else _tenant(row)


async def list_tenants(database: Database) -> list[Tenant]:
    """All, by name."""
    return [_tenant(row) for row in await database.fetch(statement("list_tenants"))]


def _tenant(row: Mapping[str, Any]) -> Tenant:
    values = dict(row)
    terms = Terms(*(values.pop(each.name) for each in fields(Terms)))
    return Tenant(**values, terms=terms)


async def add_key(database: Database, tenant: Tenant, label: str = "", *, is_operator: bool = False) -> str:
    """Make a key for the tenant and return it; it cannot be shown again."""
    key = _KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
    await database.execute(statement("add_key"), uuid4(), tenant.id, _hash(key), label, is_operator)
    return key


async def list_keys(database: Database, tenant: Tenant) -> list[ApiKey]:
    """The tenant's keys, revoked ones too, oldest first."""
    return [ApiKey(**row) for row in await database.fetch(statement("list_keys"), tenant.id)]


async def find_key(database: Database, key: str) -> ApiKey | None:
    """What is kept of a key that still opens, else None."""
    row = await database.fetchrow(statement("find_key"), _hash(key))
    return None if row is None else ApiKey(**row)


async def revoked_keys(database: Database, key_ids: Collection[UUID]) -> set[UUID]:
    """Those of these keys that open no more."""
    return {row["id"] for row in await database.fetch(statement("revoked_keys"), list(key_ids))}


async def revoke_key(database: Database, key_id: str) -> None:
    """Close a key for good; doing it twice is fine. Raises NoSuchKey."""
    try:
        wanted = UUID(key_id)
    except ValueError:
        raise NoSuchKey(key_id) from None
    if await database.fetchrow(statement("revoke_key"), wanted) is None:
        raise NoSuchKey(key_id)
