"""The leases of this worker's runs: renewed together in one statement, and given up before they can have run out.

A run may go on until `held_until`: the monotonic clock when the last good heartbeat was *sent*, plus the lease, minus
a margin. Host clocks are never compared with the database's.
"""

import math
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

import anyio
import structlog

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.runs import Lease, heartbeat

# Three heartbeats fit into a lease, so that two may fail.
HEARTBEATS_A_LEASE = 3
# A row that was locked, or a database that was away, is asked again after this.
AGAIN_SECONDS = 1.0
# What it takes to close a call and its socket once the lease is given up, as a share of the lease.
MARGIN_SHARE = 0.15

log = structlog.get_logger()


class Holder(Protocol):
    """A run, as far as its lease goes."""

    lease: Lease
    held_until: float

    def lose_lease(self) -> None:
        """Somebody else has the job."""

    def give_up_lease(self) -> None:
        """Nothing was heard from the database for so long that somebody else may have the job soon."""


class LeaseKeeper:
    """Keeps the leases of the runs that are `held`; `run` is its task."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self._database = database
        self._lease_s = lease_s
        self._holders: dict[UUID, Holder] = {}

    def first_deadline(self, sent_at: float) -> float:
        """Until when a lease that was asked for at `sent_at` (event loop's clock) may be relied on."""
        return sent_at + self._lease_s * (1 - MARGIN_SHARE)

    def hold(self, holder: Holder) -> None:
        """Renew this run's lease from now on."""
        self._holders[holder.lease.job_id] = holder

    def release(self, holder: Holder) -> None:
        """Stop renewing it."""
        self._holders.pop(holder.lease.job_id, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while True:
                all_known = await self._beat()
                beat_s = self._lease_s / HEARTBEATS_A_LEASE
                await anyio.sleep(beat_s if all_known else min(AGAIN_SECONDS, beat_s))

    async def _watch(self) -> None:
        """Apart from the heartbeats, because one that hangs is what it watches for."""
        while True:
            await anyio.sleep(min(AGAIN_SECONDS, self._lease_s * MARGIN_SHARE / 2))
            now = anyio.current_time()
            for holder in self._late(now):
                log.error("lease given up", job_id=str(holder.lease.job_id), attempt=holder.lease.attempt)
                holder.give_up_lease()
                # Once is enough; a heartbeat that comes through after all sets it anew.
                holder.held_until = math.inf

    def _late(self, now: float) -> Iterable[Holder]:
        return [holder for holder in self._holders.values() if now >= holder.held_until]

    async def _beat(self) -> bool:
        """One heartbeat of all; False where something is not known and should be asked again soon."""
        holders = list(self._holders.values())
        if not holders:
            return True
        sent_at = anyio.current_time()
        try:
            beats = await heartbeat(self._database, [holder.lease for holder in holders], self._lease_s)
        except (DatabaseUnavailable, DatabaseBusy) as error:
            log.warning("heartbeat failed", runs=len(holders), error=str(error))
            return False
        for holder in holders:
            beat = beats[holder.lease.job_id]
            if beat.renewed:
                holder.held_until = self.first_deadline(sent_at)
            elif beat.lost and holder.lease.job_id in self._holders:
                holder.lose_lease()
        return all(beat.renewed or beat.lost for beat in beats.values())
