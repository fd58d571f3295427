"""The leases of this worker's runs: renewed together in one statement, and given up before they can have run out.

    event loop of the runs                      thread with a loop and a connection of its own
      hold, release  ------ the holders ------>   heartbeat of all, three in a lease
      lose_lease     <----- a token that is stale ----'
      watch: give up <----- held_until --------------'

The thread, because a handler that computes for longer than a lease would starve a heartbeat in its own loop, and the
other runs of the worker would be taken for lost with it. What takes the interpreter's lock for as long starves the
thread too; then, as with a stopped process, the leases run out and the fence keeps the log whole.

A run may go on until `held_until`: the monotonic clock when the last good heartbeat was *sent*, plus the lease, minus
a margin. Host clocks are never compared with the database's. The watch stays beside the runs: a thread that has died
or hangs is one of the things that it watches for, and a loop that is blocked could close no call anyway.
"""

import asyncio
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

import anyio
import structlog

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.runs import Beat, Lease, heartbeat
from worker.side_loop import SideLoop

# Three heartbeats fit into a lease, so that two may fail.
HEARTBEATS_A_LEASE = 3
# A row that was locked, or a database that was away, is asked again after this.
AGAIN_SECONDS = 1.0
# What it takes to close a call and its socket once the lease is given up, as a share of the lease.
MARGIN_SHARE = 0.15
# Beyond the time limit of its kind a run may close its calls (5 s) and save its result (60 s, worker/ending.py).
# Whatever still hangs after that is not renewed for ever: its job goes to another worker by the unknown rule.
OVERTIME_SECONDS = 90.0

log = structlog.get_logger()


class Holder(Protocol):
    """A run, as far as its lease goes; both times are of the monotonic clock."""

    lease: Lease
    held_until: float
    renew_until: float

    def lose_lease(self) -> None:
        """Somebody else has the job."""

    def give_up_lease(self) -> None:
        """Nothing was heard from the database for so long that somebody else may have the job soon."""


class LeaseKeeper:
    """Keeps the leases of the runs that are held; `run` is its task, and all but the heartbeats are in its loop."""

    def __init__(self, database: Database, lease_s: float) -> None:
        self._settings = replace(database.settings, pool_size=1)
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._holders: dict[UUID, Holder] = {}

    def first_deadline(self, sent_at: float) -> float:
        """Until when a lease that was asked for at `sent_at` (monotonic clock) may be relied on."""
        return sent_at + self._lease_s * (1 - MARGIN_SHARE)

    def hold(self, holder: Holder) -> None:
        """Renew this run's lease from now on, and that of no earlier run of the same job."""
        with self._lock:
            self._holders[holder.lease.job_id] = holder

    def release(self, holder: Holder) -> None:
        """Stop renewing it; a later run of the same job, which may have begun already, is not meant."""
        with self._lock:
            if self._holders.get(holder.lease.job_id) is holder:
                del self._holders[holder.lease.job_id]

    def _held(self) -> list[Holder]:
        with self._lock:
            return list(self._holders.values())

    async def run(self) -> None:
        """Renew until cancelled. Raises what the thread of the heartbeats died of."""
        home = asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            await SideLoop("heartbeats", lambda: self._beat_on(home)).run()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(min(AGAIN_SECONDS, self._lease_s * MARGIN_SHARE / 2))
            now = time.monotonic()
            for holder in self._held():
                if now >= holder.held_until:
                    log.error("lease given up", job_id=str(holder.lease.job_id), attempt=holder.lease.attempt)
                    holder.give_up_lease()
                    # Once is enough; a heartbeat that comes through after all sets it anew.
                    holder.held_until = math.inf

    async def _beat_on(self, home: asyncio.AbstractEventLoop) -> None:
        async with Database.open(self._settings) as database:
            while True:
                all_known = await self._beat(database, home)
                beat_s = self._lease_s / HEARTBEATS_A_LEASE
                await anyio.sleep(beat_s if all_known else min(AGAIN_SECONDS, beat_s))

    async def _beat(self, database: Database, home: asyncio.AbstractEventLoop) -> bool:
        """One heartbeat of all; False where something is not known and should be asked again soon."""
        sent_at = time.monotonic()
        holders = [holder for holder in self._held() if sent_at < holder.renew_until]
        if not holders:
            return True
        try:
            beats = await heartbeat(database, [holder.lease for holder in holders], self._lease_s)
        except (DatabaseUnavailable, DatabaseBusy) as error:
            log.warning("heartbeat failed", runs=len(holders), error=str(error))
            return False
        for holder in holders:
            if beats[holder.lease.job_id].renewed:
                holder.held_until = self.first_deadline(sent_at)
        if any(beat.lost for beat in beats.values()):
            home.call_soon_threadsafe(self._tell_lost, holders, beats)
        return all(beat.renewed or beat.lost for beat in beats.values())

    def _tell_lost(self, holders: Sequence[Holder], beats: Mapping[UUID, Beat]) -> None:
        for holder in holders:
            # One that has been released meanwhile has lost it by its own end.
            if beats[holder.lease.job_id].lost and self._holders.get(holder.lease.job_id) is holder:
                holder.lose_lease()
