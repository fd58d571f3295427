"""Asks providers what became of calls of which nobody knows, and lets the jobs pay what is learned.

It runs in every worker, beside the slots. A call is asked after by one worker at a time, again and again but ever
less often; the log of its job is not touched, because nothing follows an end.
"""

import anyio
import structlog

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused
from schema.unresolved import Unresolved, resolve, take_unresolved
from worker.call_end import end_of
from worker.providers.catalog import Catalog
from worker.providers.provider import CallIds, CallOutcome, Resolvable

# Nobody waits for it; a lost call is mostly over within a minute or so.
LOOK_SECONDS = 10.0
# What one answer may take. One page of slow ones is done before the first of them is asked after again.
ASK_SECONDS = 10.0
PAGE = 20

log = structlog.get_logger()


class Reconciler:
    """Looks after the calls of one worker's providers; `run` is its task."""

    def __init__(self, database: Database, catalog: Catalog) -> None:
        self._database = database
        providers = (catalog.provider(name) for name in catalog.names)
        self._providers = {one.name: one for one in providers if isinstance(one, Resolvable) and one.can_look_up}

    async def run(self) -> None:
        """Look, until cancelled."""
        while self._providers:
            try:
                await self._look()
            except (DatabaseUnavailable, DatabaseBusy, WriteRefused) as error:
                log.warning("reconciler could not look", error=str(error))
            await anyio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        for call in await take_unresolved(self._database, self._providers.keys(), PAGE):
            await self._ask(call)

    async def _ask(self, call: Unresolved) -> None:
        receipt = None
        with anyio.move_on_after(ASK_SECONDS):
            ids = CallIds(call.resume_id, call.provider_request_id)
            receipt = await self._providers[call.provider].look_up(call.model, ids)
        if receipt is None:
            return
        outcome = receipt.outcome or CallOutcome.UNKNOWN
        more_usd = await resolve(self._database, call, end_of(receipt, outcome))
        log.info(
            "call resolved",
            job_id=str(call.job_id),
            attempt=call.attempt,
            call=call.call,
            outcome=outcome.value,
            adjusted=bool(more_usd),
        )
