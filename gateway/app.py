"""The composition root: everything that a gateway consists of is made and joined here, and nowhere else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware

from gateway.answers import Answers
from gateway.gateway import Gateway
from gateway.key_watch import KeyWatch
from gateway.kind_book import KindBook
from gateway.origins import Cors
from gateway.problems import HANDLERS
from gateway.readiness import Readiness
from gateway.routes.demo import LoopbackOnly, demo_routes
from gateway.routes.jobs import job_routes
from gateway.routes.kinds import kind_routes
from gateway.routes.operations import operation_routes
from gateway.routes.outcomes import outcome_routes
from gateway.routes.retries import retry_routes
from gateway.routes.stats import stats_routes
from gateway.routes.streams import stream_routes
from gateway.routes.tokens import token_routes
from gateway.settings import GatewaySettings
from gateway.tailer import Tailer
from gateway.tenant_book import TenantBook
from gateway.tokens import Signer
from gateway.wheel import TURN_SECONDS, Wheel
from schema.database import Database
from schema.hints import EVENTS_CHANNEL, HintSender
from schema.listener import Listener


@asynccontextmanager
async def open_gateway(settings: GatewaySettings) -> AsyncIterator[Gateway]:
    """The gateway with its side tasks running. One of them that dies ends the block with its error: loudly."""
    async with Database.open(settings.database) as database, anyio.create_task_group() as tasks:
        gateway = _joined(settings, database)
        for part in (
            *(gateway.readiness, gateway.listener, gateway.tailer, gateway.wheel),
            *(gateway.keys, gateway.hints, gateway.kinds),
        ):
            tasks.start_soon(part.run)
        yield gateway
        tasks.cancel_scope.cancel()


def _joined(settings: GatewaySettings, database: Database) -> Gateway:
    tailer = Tailer(database)
    # A short heartbeat, as tests set it, wants a faster clock.
    wheel = Wheel(min(TURN_SECONDS, settings.heartbeat_s / 10))
    listener = Listener(settings.database, {EVENTS_CHANNEL: tailer.hint}, tailer.everything_changed)
    return Gateway(
        settings=settings,
        database=database,
        tailer=tailer,
        wheel=wheel,
        keys=KeyWatch(database, wheel),
        listener=listener,
        hints=HintSender(database),
        signer=Signer(settings.secrets),
        kinds=KindBook(database),
        tenants=TenantBook(database),
        readiness=Readiness(settings.database, listener),
    )


def create_app(gateway: Gateway) -> Starlette:
    """The ASGI application. Middleware is pure ASGI throughout: another kind makes a cut stream look complete."""
    demo = gateway.settings.demo
    app = Starlette(
        routes=[
            *job_routes(),
            *retry_routes(),
            *outcome_routes(),
            *stream_routes(),
            *token_routes(),
            *kind_routes(),
            *stats_routes(),
            *operation_routes(),
            *(demo_routes() if demo else []),
        ],
        middleware=[
            Middleware(Cors, origins=gateway.settings.origins),
            Middleware(Answers),
            *([Middleware(LoopbackOnly)] if demo else []),
        ],
        exception_handlers=dict(HANDLERS),
    )
    # `/api/ai/jobs/` is no address; a redirect to one would lose the body of a POST.
    app.router.redirect_slashes = False
    app.state.gateway = gateway
    return app
