"""What one would write without Outlive: a stream per request, nothing kept. The same pieces, for comparison.

`/plain` is a Starlette StreamingResponse, `/sse` an sse-starlette EventSourceResponse; both under the same uvicorn.
"""

import sys
from collections.abc import AsyncIterator

import anyio
import orjson
import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from scripted_provider.script import stamp


async def _pieces(request: Request) -> AsyncIterator[tuple[int, str]]:
    pieces, gap_ms = int(request.query_params["pieces"]), float(request.query_params["gap_ms"])
    starts_at = anyio.current_time()
    for number in range(pieces):
        await anyio.sleep(max(0.0, starts_at + number * gap_ms / 1000 - anyio.current_time()))
        yield number + 1, orjson.dumps({"text": stamp()}).decode()


async def plain(request: Request) -> Response:
    async def frames() -> AsyncIterator[bytes]:
        async for number, data in _pieces(request):
            yield f"event: chunk\nid: {number}\ndata: {data}\n\n".encode()
        yield b"event: succeeded\ndata: {}\n\n"

    return StreamingResponse(frames(), media_type="text/event-stream")


async def sse(request: Request) -> Response:
    async def events() -> AsyncIterator[ServerSentEvent]:
        async for number, data in _pieces(request):
            yield ServerSentEvent(data, event="chunk", id=str(number), sep="\n")
        yield ServerSentEvent("{}", event="succeeded", sep="\n")

    return EventSourceResponse(events())


if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=[Route("/plain", plain), Route("/sse", sse)]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        http="h11",
    )
