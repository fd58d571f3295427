"""A response whose body is a stream of frames, in plain ASGI.

Written here because what stands on the shelf costs more per frame and hides what matters: sse-starlette took 53 us a
write where plain ASGI took 22 (docs/performance.md), patches the server on import, and a Starlette middleware makes a
cut look like a clean end. Here an error in mid-stream reaches the server, which then cuts the connection visibly.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.client_watch import cancel_when_left
from gateway.wheel import Pulse, Wheel

Pieces = Callable[[Pulse], AsyncGenerator[bytes]]

HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
}


class EventStream(Response):
    """Sends each piece as it comes; ends when the pieces end, the client leaves, or it stops reading."""

    def __init__(self, wheel: Wheel, pieces: Pieces) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._wheel = wheel
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with self._wheel.turning(tasks.cancel_scope) as pulse:
                async with aclosing(self._pieces(pulse)) as pieces:
                    async for piece in pieces:
                        pulse.sending()
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        pulse.sent()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()


def one_piece(piece: bytes) -> Pieces:
    """A body that is one piece."""

    async def body(_pulse: Pulse) -> AsyncGenerator[bytes]:
        yield piece

    return body
