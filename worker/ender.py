"""Group commit of ends: while some are being committed, the runs that end meanwhile wait for the next statement.

It waits for no lock, so that one job whose row somebody is at delays no other; what it could not end its caller does
alone, where it may wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from schema.database import Database
from schema.endings import Ending, end_run, end_runs
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Waiting:
    ending: Ending
    done: anyio.Event = field(default_factory=anyio.Event)
    ended: bool = False


class Ender:
    """Ends the runs of this process; `run` is its task."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Waiting] = []
        self._wanted = anyio.Event()
        self._is_gone = False

    async def end(self, ending: Ending) -> bool:
        """End the job; False where nothing was written: the lease is stale, or somebody wants the job cancelled.

        Raises DatabaseUnavailable, DatabaseBusy, WriteRefused; whether it was written is not known after the first.
        """
        return await self._end_with_others(ending) or await end_run(self._database, ending)

    async def _end_with_others(self, ending: Ending) -> bool:
        if self._is_gone:
            return False
        one = _Waiting(ending)
        self._waiting.append(one)
        self._wanted.set()
        await one.done.wait()
        return one.ended

    async def run(self) -> None:
        """Commit ends, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                batch, self._waiting = self._waiting, []
                await self._commit(batch)
        finally:
            # A run that writes its end is shielded: nobody else would wake it.
            self._is_gone = True
            _wake(self._waiting)

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        try:
            ended = await end_runs(self._database, [one.ending for one in batch])
            for one in batch:
                one.ended = one.ending.lease.job_id in ended
        except (DatabaseUnavailable, DatabaseBusy, WriteRefused) as error:
            log.warning("ends not confirmed", runs=len(batch), error=str(error))
        finally:
            _wake(batch)


def _wake(waiting: Sequence[_Waiting]) -> None:
    for one in waiting:
        one.done.set()
