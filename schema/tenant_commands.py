"""`python -m schema tenant`."""

from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal, TypeVar

import click

from schema import tenants
from schema.command_line import ready_database, run
from schema.database import DatabaseSettings
from schema.limit_commands import Most
from schema.limits import list_limits, set_limit
from schema.settings import database_options
from schema.tenants import Tenant, Terms

_Command = TypeVar("_Command", bound=Callable[..., Any])
# As much as the column holds; nobody's quota is near it.
MOST_USD = Decimal(999_999_999)


class Usd(click.ParamType[Decimal]):
    """An amount of US dollars."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        """Refuse what is no amount: signs, exponents, more than 9 decimals."""
        try:
            amount = Decimal(str(value))
        except InvalidOperation:
            amount = Decimal(-1)
        exponent = amount.as_tuple().exponent
        if not isinstance(exponent, int) or exponent < -9 or not 0 <= amount <= MOST_USD:
            self.fail(f"{value} is no amount of dollars; give one like 250 or 19.99", param, ctx)
        return amount


def _terms_options(command: _Command) -> _Command:
    """What a tenant may have."""
    for option in (
        click.option("--weight", type=click.IntRange(1, 1000), help="Its share of the starts [default: 1]."),
        click.option("--max-queued", type=click.IntRange(0), help="Jobs that may wait; more are answered 429."),
        click.option("--max-running", type=Most(), help="The same as `limit set tenant:NAME N`."),
        click.option(
            "--quota-period", type=click.Choice(["total", "month"]), help="What the quota is for [default: total]."
        ),
        click.option("--quota-usd", type=Usd(), help="What its jobs may cost; more are answered 402."),
    ):
        command = option(command)
    return command


@click.group()
def tenant() -> None:
    """Who has jobs."""


@tenant.command("add")
@click.argument("name")
@_terms_options
@database_options
def tenant_add(
    name: str,
    weight: int | None,
    max_queued: int | None,
    max_running: int | None,
    quota_usd: Decimal | None,
    quota_period: Literal["total", "month"] | None,
    **database: Any,
) -> None:
    """Make a tenant."""
    if quota_period is not None and quota_usd is None:
        raise click.UsageError("--quota-period says what --quota-usd is for; give that too")
    terms = Terms(weight or 1, max_queued, quota_usd, None if quota_usd is None else quota_period or "total")
    run(database, partial(_tenant_add, name=name, terms=terms, max_running=max_running))


async def _tenant_add(settings: DatabaseSettings, name: str, terms: Terms, max_running: int | None) -> int:
    async with ready_database(settings) as database:
        made = await tenants.add_tenant(database, name, terms)
        if max_running is not None:
            await set_limit(database, f"tenant:{name}", max_running)
    print(f"{made.id}  {made.name}")
    return 0


@tenant.command("set")
@click.argument("name")
@click.option("--no-quota", is_flag=True, help="Let its jobs cost what they cost.")
@click.option("--no-max-queued", is_flag=True, help="Let as many jobs wait as there are.")
@_terms_options
@database_options
def tenant_set(name: str, no_quota: bool, no_max_queued: bool, max_running: int | None, **options: Any) -> None:
    """Change what a tenant may have; what is not named stays."""
    changes = {each.name: options.pop(each.name) for each in fields(Terms)}
    changes = {what: value for what, value in changes.items() if value is not None}
    if no_quota:
        changes |= {"quota_usd": None, "quota_period": None}
    if no_max_queued:
        changes["max_queued"] = None
    run(options, partial(_tenant_set, name=name, changes=changes, max_running=max_running))


async def _tenant_set(settings: DatabaseSettings, name: str, changes: dict[str, Any], max_running: int | None) -> int:
    async with ready_database(settings) as database:
        there = await tenants.find_tenant(database, name)
        terms = replace(there.terms, **changes)
        if terms.quota_usd is None and terms.quota_period is not None:
            raise click.UsageError("--quota-period says what --quota-usd is for; give that too")
        if terms.quota_usd is not None and terms.quota_period is None:
            terms = replace(terms, quota_period="total")
        await tenants.set_terms(database, there, terms)
        if max_running is not None:
            await set_limit(database, f"tenant:{name}", max_running)
    print(_line(replace(there, terms=terms), max_running))
    return 0


@tenant.command("list")
@database_options
def tenant_list(**database: Any) -> None:
    """Show all tenants."""
    run(database, _tenant_list)


async def _tenant_list(settings: DatabaseSettings) -> int:
    async with ready_database(settings) as database:
        running = {each.scope: each.most for each in await list_limits(database)}
        for each in await tenants.list_tenants(database):
            print(_line(each, running.get(f"tenant:{each.name}")))
    return 0


def _line(tenant: Tenant, max_running: int | None) -> str:
    terms = tenant.terms
    parts = [f"{tenant.id}  {tenant.name}  since {tenant.created_at:%Y-%m-%d}"]
    if terms.weight != 1:
        parts.append(f"weight {terms.weight}")
    if max_running is not None:
        parts.append(f"runs at most {max_running}")
    if terms.max_queued is not None:
        parts.append(f"queues at most {terms.max_queued}")
    if terms.quota_usd is not None:
        parts.append(f"quota {terms.quota_usd.normalize():f} USD {terms.quota_period}")
    return "  ".join(parts)
