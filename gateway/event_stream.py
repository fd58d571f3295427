"""A response whose body is a stream of frames, in plain ASGI.

Written here because what stands on the shelf costs more per frame and hides what matters: sse-starlette took 53 us a
write where plain ASGI took 22 (docs/performance.md), patches the server on import, and a Starlette middleware makes a
cut look like a clean end. Here an error in mid-stream reaches the server, which then cuts the connection visibly.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# A reader that takes nothing for so long is gone or hostile; it comes back with its cursor if it lives.
SEND_SECONDS = 30

HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
}


class EventStream(Response):
    """Sends each piece as it comes; ends when the pieces end, the client leaves, or it stops reading."""

    def __init__(self, pieces: AsyncGenerator[bytes]) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_disconnected, receive, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    with anyio.fail_after(SEND_SECONDS):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()


async def _until_disconnected(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def one_piece(piece: bytes) -> AsyncGenerator[bytes]:
    """A body that is one piece."""
    yield piece
