"""Tenants by name and by id, remembered: they are never renamed and never removed."""

from uuid import UUID

from schema.database import Database
from schema.errors import NameTaken, NoSuchTenant
from schema.tenants import Tenant, add_tenant, find_tenant, get_tenant


class TenantBook:
    """Looks each tenant up once; as large as there are tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_name: dict[str, Tenant] = {}
        self._by_id: dict[UUID, Tenant] = {}

    async def named(self, name: str) -> Tenant:
        """Raises NoSuchTenant."""
        return self._by_name.get(name) or self._remember(await find_tenant(self._database, name))

    async def of_id(self, tenant_id: UUID) -> Tenant:
        """The tenant that a row names; a foreign key says that it is there."""
        known = self._by_id.get(tenant_id)
        if known is None:
            known = await get_tenant(self._database, tenant_id)
            assert known is not None
        return self._remember(known)

    async def made(self, name: str) -> Tenant:
        """The tenant of this name, made where it is missing."""
        try:
            return await self.named(name)
        except NoSuchTenant:
            try:
                return self._remember(await add_tenant(self._database, name))
            except NameTaken:
                return await self.named(name)

    def _remember(self, tenant: Tenant) -> Tenant:
        self._by_name[tenant.name] = self._by_id[tenant.id] = tenant
        return tenant
