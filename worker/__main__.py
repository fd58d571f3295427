"""`python -m worker`: runs jobs until it is told to stop."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click
import uvloop

from schema.database import Database, DatabaseSettings
from schema.faults import explained
from schema.logs import LogFormat, configure_logs
from schema.readiness import wait_for_schema
from schema.settings import database_options, database_settings
from worker.admin import Admin, AdminPortTaken, admin_listener
from worker.handlers.loading import HandlersError, load_kinds
from worker.handlers.registry import BUILT_IN, Registry
from worker.last_moment import leaving_in_time
from worker.providers.catalog import Catalog
from worker.providers.http_call import silence_transport
from worker.providers.settings import ProvidersFileError
from worker.settings import WorkerSettings, worker_options
from worker.worker import Worker


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@worker_options
@database_options
def main(
    lease_seconds: float,
    concurrency: int,
    grace_seconds: float,
    host: str,
    admin_port: int | None,
    providers: Path | None,
    handlers: tuple[str, ...],
    log: LogFormat | None,
    **database: Any,
) -> None:
    """Take jobs of the kinds that are registered here, run them, and keep every piece of their output."""
    configure_logs(log)
    silence_transport()
    with explained(ProvidersFileError, HandlersError, AdminPortTaken):
        catalog = Catalog.load(providers, os.environ)
        registry = Registry((*BUILT_IN, *load_kinds(handlers)))
        settings = WorkerSettings(lease_seconds, concurrency, grace_seconds, host, admin_port)
        with database_settings(**database) as where:
            anyio.run(
                _serve, settings, where, catalog, registry, backend_options={"loop_factory": uvloop.new_event_loop}
            )


async def _serve(settings: WorkerSettings, where: DatabaseSettings, catalog: Catalog, registry: Registry) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals, leaving_in_time(settings.grace_s):
        async with Database.open(replace(where, plans_once=True)) as database, anyio.create_task_group() as tasks:
            worker = Worker(settings, database, catalog, registry)
            waiting = anyio.CancelScope()
            tasks.start_soon(_obey, signals, [worker.drain, worker.hurry], waiting)
            if settings.admin_port is not None:
                tasks.start_soon(Admin(worker).serve, await admin_listener(settings.host, settings.admin_port))
            with waiting:
                await wait_for_schema(where)
            if not waiting.cancel_called:
                await worker.run()
            tasks.cancel_scope.cancel()


async def _obey(signals: Any, commands: list[Callable[[], None]], waiting: anyio.CancelScope) -> None:
    """The first signal begins the stop, the second one shortens it."""
    async for _ in signals:
        waiting.cancel()
        if commands:
            commands.pop(0)()


if __name__ == "__main__":
    main(prog_name="python -m worker")
