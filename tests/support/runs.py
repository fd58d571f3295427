"""A run in the hands of a handler of the test's own, with everything around it real."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from schema.database import Database
from schema.hints import HintSender
from tests.support.jobs import register, running
from worker.appender import Appender
from worker.ender import Ender
from worker.ending import Services
from worker.handlers.kind import Handler, Json, Kind, Repeat, RunContext
from worker.leases import LeaseKeeper
from worker.providers.provider import CallOutcome, Piece, Prompt, Provider, Receipt, TokenPrice
from worker.run import Run

PROMPT = Prompt(())
Around = Callable[[Receipt], Awaitable[None]]


async def _nothing(_: Receipt) -> None: ...


@dataclass
class Scripted:
    """A provider that says `pieces`; `before` runs when the request goes out, `within` after the first piece."""

    pieces: tuple[str, ...] = ("a", "b")
    before: Around = _nothing
    within: Around = _nothing
    name: str = "scripted"
    token_price: TokenPrice | None = None

    def price(self, model: str | None) -> TokenPrice | None:
        return self.token_price

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        await self.before(receipt)
        receipt.mark_sent()
        for number, text in enumerate(self.pieces):
            receipt.mark_first_chunk()
            yield Piece(text)
            if number == 0:
                await self.within(receipt)
        receipt.outcome = CallOutcome.SUCCEEDED


async def calls_once(run: RunContext, _: dict[str, Json]) -> Json:
    """A handler that is one call."""
    return {"text": (await run.call(PROMPT)).text}


@asynccontextmanager
async def serving(database: Database, lease_s: float = 60) -> AsyncIterator[Services]:
    """What every run of a worker works with, at work."""
    hints = HintSender(database)
    services = Services(database, Appender(database, hints), Ender(database), LeaseKeeper(database, lease_s), hints)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(services.appender.run)
        tasks.start_soon(services.ender.run)
        tasks.start_soon(services.keeper.run)
        yield services
        tasks.cancel_scope.cancel()


async def a_run(
    services: Services,
    handler: Handler,
    provider: Provider | None = None,
    *,
    seen_by: Database | None = None,
    repeat: Repeat = Repeat.SAFE,
    time_limit_s: int = 600,
    **job: object,
) -> Run:
    """A claimed run of a fresh job; `seen_by` is the database of the test where the run's own is interfered with."""
    database = seen_by or services.database
    claimed = await running(database, **job)
    await register(database, claimed.kind, repeat.value)
    kind = Kind(claimed.kind, 1, {}, repeat, handler, "any", time_limit_s)
    claimed = replace(claimed, provider=None if provider is None else provider.name)
    return Run(services, claimed, kind, provider, services.keeper.first_deadline(anyio.current_time()))
