"""A worker process: it takes jobs, runs them, and looks after its leases and after jobs that nobody holds.

One task group owns the side tasks; if one of them dies the process ends, loudly, and its leases run out. At a stop
nothing is claimed any more at that instant, runs that may be repeated go back at once, the others may end within the
grace, and what is left then is closed by the unknown rule.
"""

import time
from uuid import UUID

import anyio
import structlog
from anyio.abc import TaskGroup

from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable, WriteRefused
from schema.hints import CANCEL_CHANNEL, WORK_CHANNEL, HintSender, decode_hints, short_id
from schema.kinds import JobKind, forget_worker, register_kind, see_worker
from schema.limits import set_limit
from schema.listener import Listener
from schema.partitions import make_partitions
from schema.runs import Ask, Claimed, ClaimedRun, cancels_among, claim
from worker.appender import Appender
from worker.ender import Ender
from worker.ending import Services
from worker.handlers.registry import Registry
from worker.leases import LeaseKeeper
from worker.providers.catalog import Catalog
from worker.reaper import Reaper
from worker.reconciler import Reconciler
from worker.run import Run, Stop
from worker.settings import WorkerSettings
from worker.turns import Turns

# Behind every hint; docs/protocol.md 5 promises that a worker looks after 2 s without one.
POLL_SECONDS = 2.0
# Without NOTIFY a cancel is learned within 2 s; docs/protocol.md 5.
CANCEL_POLL_SECONDS = 1.5
# One claim is one commit; past some dozens a larger one gains nothing and holds its rows longer.
CLAIM_MOST = 50
# Others were at all that was left: ask again, but not for as long as somebody holds on to a row.
IN_VAIN_MOST = 3
NOTHING = Claimed((), (), more=False)
# The view of jobs counts a worker as gone after 60 s.
PRESENCE_SECONDS = 15.0
# Partitions are made weeks ahead.
PARTITIONS_SECONDS = 3600.0
# Of the grace: writing the ends of what had to be stopped, and leaving.
LEAVING_SECONDS = 3.0

log = structlog.get_logger()


class Worker:
    """Call `run`; `drain` begins the stop and `hurry` shortens it.

    `claims` counts the jobs that it has taken; `is_ready` while it takes any.
    """

    def __init__(self, settings: WorkerSettings, database: Database, catalog: Catalog, registry: Registry) -> None:
        self._settings = settings
        self._database = database
        self._catalog = catalog
        self._registry = registry
        self._hints = HintSender(database)
        self._appender = Appender(database, self._hints)
        self._keeper = LeaseKeeper(database, settings.lease_s)
        self._ender = Ender(database)
        self._services = Services(database, self._appender, self._ender, self._keeper, self._hints)
        self._turns = Turns()
        self._kinds = [kind.name for kind in registry]
        self._runs: set[Run] = set()
        self.claims = 0
        self.is_ready = False
        self._wake = anyio.Event()
        self._draining = False
        self._cancels_hinted = anyio.Event()
        self._hurried = anyio.Event()

    @property
    def runs_in_hand(self) -> int:
        """How many jobs it has at work."""
        return len(self._runs)

    def drain(self) -> None:
        """Claim nothing more and come to an end within the grace."""
        self._draining = True
        self.is_ready = False
        self._look()

    def hurry(self) -> None:
        """Do not wait for anything any more."""
        self._hurried.set()

    def _look(self) -> None:
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    async def run(self) -> None:
        """Work until drained. Raises PoolerRefused, SchemaTooNew, or what a side task died of."""
        channels = {WORK_CHANNEL: lambda _: self._look(), CANCEL_CHANNEL: self._cancel_named}
        listener = Listener(self._database.settings, channels, self._look)
        await listener.check_address()
        await self._register()
        async with anyio.create_task_group() as side:
            for task in (
                *(self._hints.run, self._appender.run, self._ender.run, self._keeper.run, listener.run),
                *(Reaper(self._database, self._hints).run, Reconciler(self._database, self._catalog).run),
                *(self._stay_seen, self._keep_partitions, self._look_for_cancels),
            ):
                side.start_soon(task)
            self.is_ready = True
            log.info("worker ready", worker=self._settings.name, kinds=self._kinds, providers=self._catalog.names)
            async with anyio.create_task_group() as runs:
                await self._claim_until_drained(runs)
                await self._end_runs()
            await self._leave()
            side.cancel_scope.cancel()

    async def _register(self) -> None:
        for kind in self._registry:
            provider, model = self._catalog.default_for(kind)
            await register_kind(
                self._database,
                JobKind(
                    kind=kind.name,
                    version=kind.version,
                    input_schema=kind.input_schema,
                    repeat=kind.repeat,
                    time_limit_s=kind.time_limit_s,
                    calls_provider=kind.works_with != "none",
                    default_provider=provider,
                    default_model=model,
                    choices=self._catalog.choices_for(kind),
                    price_usd=kind.price_usd,
                    max_cost_usd=kind.max_cost_usd,
                    calls=kind.calls,
                    prices=self._catalog.prices_for(kind),
                ),
            )
        for provider_name, most in self._catalog.limits.items():
            await set_limit(self._database, f"provider:{provider_name}", most, by_operator=False)
        await self._say_present()

    async def _say_present(self) -> None:
        await see_worker(self._database, self._settings.name, self._kinds, self._catalog.names)

    async def _claim_until_drained(self, runs: TaskGroup) -> None:
        in_vain = 0
        while not self._draining:
            wake = self._wake
            wanted = min(CLAIM_MOST, self._settings.concurrency - len(self._runs))
            claimed = await self._claim(runs, wanted) if wanted else NOTHING
            in_vain = 0 if claimed.runs else in_vain + 1
            if wanted and (len(claimed.runs) == wanted or (claimed.more and in_vain <= IN_VAIN_MOST)):
                continue
            with anyio.move_on_after(POLL_SECONDS):
                await wake.wait()

    async def _claim(self, runs: TaskGroup, wanted: int) -> Claimed:
        """Take up to `wanted` jobs and start them."""
        asked_at = time.monotonic()
        ask = Ask(
            *(self._settings.name, self._kinds, self._catalog.names, wanted, self._settings.lease_s),
            *(self._turns.virtual_now, self._turns.tags),
        )
        try:
            claimed = await claim(self._database, ask)
        except (DatabaseUnavailable, DatabaseBusy, WriteRefused) as error:
            log.warning("claim failed", error=str(error))
            return NOTHING
        self.claims += len(claimed.runs)
        self._turns.took(claimed.turns)
        for each in claimed.runs:
            self._start(runs, each, self._keeper.first_deadline(asked_at))
        return claimed

    def _start(self, runs: TaskGroup, claimed: ClaimedRun, held_until: float) -> None:
        provider = None if claimed.provider is None else self._catalog.provider(claimed.provider)
        run = Run(self._services, claimed, self._registry[claimed.kind], provider, held_until)
        log.info("run started", job_id=str(run.lease.job_id), kind=claimed.kind, attempt=run.lease.attempt)
        self._hints.events(run.lease.job_id, claimed.last_seq)
        self._runs.add(run)
        runs.start_soon(self._execute, run)

    def _cancel_named(self, payload: str) -> None:
        """A hint: whether somebody really wants these jobs to end, the table says."""
        named = {short for short, _ in decode_hints(payload)}
        if any(short_id(run.lease.job_id) in named for run in self._runs):
            self._cancels_hinted.set()

    async def _look_for_cancels(self) -> None:
        """At a hint, and behind every hint as often as the contract's 2 s ask for."""
        while True:
            with anyio.move_on_after(CANCEL_POLL_SECONDS):
                await self._cancels_hinted.wait()
            self._cancels_hinted = anyio.Event()
            runs: dict[UUID, Run] = {run.lease.job_id: run for run in self._runs}
            try:
                wanted = await cancels_among(self._database, runs.keys()) if runs else {}
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("cancels not looked up", error=str(error))
                continue
            for job_id, by in wanted.items():
                runs[job_id].cancel(by)

    async def _execute(self, run: Run) -> None:
        try:
            await run.execute()
        finally:
            self._runs.discard(run)
            self._look()

    async def _end_runs(self) -> None:
        """Hand back what may be run twice, let the rest end, and stop what does not in time."""
        log.info("worker stops", runs=len(self._runs))
        for run in list(self._runs):
            if run.is_safe_to_hand_back:
                run.stop(Stop.HAND_BACK)
        with anyio.move_on_after(max(0.0, self._settings.grace_s - 2 * LEAVING_SECONDS)):
            async with anyio.create_task_group() as waits:
                waits.start_soon(self._cancel_when_hurried, waits)
                await self._all_ended()
                waits.cancel_scope.cancel()
        for run in list(self._runs):
            run.stop(Stop.OUT_OF_TIME)
        with anyio.move_on_after(LEAVING_SECONDS):
            await self._all_ended()

    async def _cancel_when_hurried(self, waits: TaskGroup) -> None:
        await self._hurried.wait()
        waits.cancel_scope.cancel()

    async def _all_ended(self) -> None:
        while self._runs:
            wake = self._wake
            await wake.wait()

    async def _leave(self) -> None:
        with anyio.move_on_after(LEAVING_SECONDS):
            try:
                await forget_worker(self._database, self._settings.name)
            except DatabaseUnavailable:
                log.warning("worker left without a word", worker=self._settings.name)
        log.info("worker stopped", worker=self._settings.name, runs_left=len(self._runs))

    async def _stay_seen(self) -> None:
        while True:
            await anyio.sleep(PRESENCE_SECONDS)
            try:
                await self._say_present()
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("presence not noted", error=str(error))

    async def _keep_partitions(self) -> None:
        while True:
            await anyio.sleep(PARTITIONS_SECONDS)
            try:
                made = await make_partitions(self._database)
                log.info("partitions made", names=made)
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("partitions not made", error=str(error))
