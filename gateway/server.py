"""The HTTP server: our own listening socket, a bounded stop, and errors in our own form.

uvicorn is pinned, since this leans on how it stops. h11 and not httptools: with that one a request pipelined behind a
stream leaves the stream's task running when the client goes.
"""

import asyncio
import logging
import os
import signal
import socket
from types import FrameType

import uvicorn

from gateway.app import create_app, open_gateway
from gateway.connection import Http
from gateway.gateway import Gateway
from gateway.settings import GatewaySettings

# What the kernel keeps for a reader that does not read; without it one was found to hold 2.8 MB.
SEND_BUFFER_BYTES = 64 * 1024
# A peer that acknowledges nothing for so long is gone; an honest slow one acknowledges.
UNACKNOWLEDGED_MS = 30_000
BACKLOG = 2048
# A browser sends the cookies of every server on this host; h11's own 16 KiB counted only what came in several reads.
HEAD_BYTES = 64 * 1024
# Longer than the minute for which proxies keep theirs: who closes second loses no request.
KEEP_ALIVE_SECONDS = 75
# Of the grace: the last answers have to be done so long before its end, so that side tasks and pool can close...
CLOSING_SECONDS = 1.5
# ...and so long before its end the process goes, whatever still hangs.
LAST_SECONDS = 0.5


class Server(uvicorn.Server):
    """Tells the gateway that it drains before uvicorn begins to close, and is gone when the grace is over."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        super().__init__(
            uvicorn.Config(
                create_app(gateway),
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
                timeout_graceful_shutdown=gateway.settings.grace_s - CLOSING_SECONDS,  # type: ignore[arg-type]
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens, once it does; others wait for exactly this line."""
        await super().startup(sockets)
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            print(f"outlive gateway listening on {address}", flush=True)  # noqa: T201

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
    """Serve until told to end. Raises what ended a side task, OSError where the address is taken."""
    _silence_uvicorn()
    with _listening_socket(settings.host, settings.port) as listening:
        async with open_gateway(settings) as gateway:
            await Server(gateway).serve(sockets=[listening])


def _silence_uvicorn() -> None:
    """It writes request lines with their tokens and tracebacks with what users wrote; what matters of it we say."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).disabled = True


def _listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket whose accepted ones inherit what it is set to."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    try:
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening
