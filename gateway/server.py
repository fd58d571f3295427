"""The HTTP servers: our own listening sockets, a bounded stop, and errors in our own form.

uvicorn is pinned, since this leans on how it stops. h11 and not httptools: with that one a request pipelined behind a
stream leaves the stream's task running when the client goes.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.applications import Starlette

from gateway.admin import create_admin_app
from gateway.app import create_app, open_gateway
from gateway.connection import Http
from gateway.gateway import Gateway
from gateway.listening import CannotListen, address_of, listening_socket
from gateway.settings import GatewaySettings

BACKLOG = 2048
# A browser sends the cookies of every server on this host; h11's own 16 KiB counted only what came in several reads.
HEAD_BYTES = 64 * 1024
# Longer than the minute for which proxies keep theirs: who closes second loses no request.
KEEP_ALIVE_SECONDS = 75
# Of the grace: the last answers have to be done so long before its end, so that side tasks and pool can close...
CLOSING_SECONDS = 1.5
# Of those, what the admin port may take, which goes last: whoever asks while we drain gets an answer.
ADMIN_CLOSING_SECONDS = 0.3
# ...and so long before its end the process goes, whatever still hangs.
LAST_SECONDS = 0.5


class _Server(uvicorn.Server):
    """One port. `name` is what it says of itself, `variable` what chooses the port."""

    name = ""
    variable = ""

    def __init__(self, app: Starlette, closing_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Http,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                h11_max_incomplete_event_size=HEAD_BYTES,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=closing_s,  # type: ignore[arg-type]
            )
        )

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; uvicorn leaves all open where it is cancelled."""
        try:
            await super()._serve(sockets)
        finally:
            # Our sockets are closed next; watched on, their numbers would be those of others, whom nobody hears then.
            for server in getattr(self, "servers", ()):
                server.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens, once it does; others wait for exactly this line. Raises CannotListen."""
        (listening,) = sockets or []
        try:
            await super().startup(sockets)
        except OSError as error:
            # Another process was bound there too, without listening yet, and now listens.
            host, port = listening.getsockname()[:2]
            raise CannotListen(host, port, self.variable, error.strerror) from error
        print(f"{self.name} listening on {address_of(listening)}", flush=True)  # noqa: T201


class AdminServer(_Server):
    """Answers the platform as long as the process lives; signals are the other server's."""

    name = "outlive gateway admin"
    variable = "OUTLIVE_ADMIN_PORT"

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(create_admin_app(gateway), ADMIN_CLOSING_SECONDS)
        self._task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED

    async def serve_beside(self, listening: socket.socket, *, task_status: TaskStatus[None]) -> None:
        """Serve until `should_exit`; started once it listens."""
        self._task_status = task_status
        await self._serve([listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Let whoever started it go on."""
        await super().startup(sockets)
        self._task_status.started()


class Server(_Server):
    """Tells the gateway that it drains before uvicorn begins to close, and is gone when the grace is over."""

    name = "outlive gateway"
    variable = "OUTLIVE_PORT"

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        super().__init__(create_app(gateway), gateway.settings.grace_s - CLOSING_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On a signal. uvicorn would raise it again at its end, and the pool would never be closed."""
        if self.should_exit:
            self.force_exit = sig == signal.SIGINT
            return
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._gateway.draining.set()
        self._gateway.wheel.wake_all()
        # Whatever hangs then, hangs for ever; a platform would send SIGKILL a moment later.
        self._loop.call_later(self._gateway.settings.grace_s - LAST_SECONDS, os._exit, 1)


async def serve(settings: GatewaySettings) -> None:
    """Serve until told to end. Raises CannotListen, and what ended a side task."""
    _silence_uvicorn()
    with (
        listening_socket(settings.host, settings.port, Server.variable) as listening,
        listening_socket(settings.host, settings.admin_port, AdminServer.variable) as for_admin,
    ):
        async with open_gateway(settings) as gateway, _admin_port(gateway, for_admin):
            await Server(gateway).serve(sockets=[listening])


@asynccontextmanager
async def _admin_port(gateway: Gateway, listening: socket.socket) -> AsyncIterator[None]:
    """Open while the block runs, and told to close at its end."""
    server = AdminServer(gateway)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve_beside, listening)
        yield
        server.should_exit = True


def _silence_uvicorn() -> None:
    """It writes request lines with their tokens and tracebacks with what users wrote; what matters of it we say."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).disabled = True
