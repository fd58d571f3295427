"""Passes connections on, byte for byte: `forward.py LISTEN_HOST:PORT TARGET_HOST:PORT`.

In compose.yaml it stands before the page, which is served on a loopback address only, while a published port leads
to the container's outer one. The Host header arrives as the browser sent it, so the page still checks it.
"""

import sys
from functools import partial

import anyio
from anyio.abc import SocketStream


def address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080` as host and port."""
    host, _, port = text.rpartition(":")
    return host, int(port)


async def main(listen: str, target: str) -> None:
    """Serves until it is cancelled."""
    host, port = address(listen)
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    await listener.serve(partial(_serve, address(target)))


async def _serve(target: tuple[str, int], client: SocketStream) -> None:
    async with client:
        try:
            upstream = await anyio.connect_tcp(*target)
        except OSError:
            return  # the client sees the connection close, as it would without us
        async with upstream, anyio.create_task_group() as tasks:
            tasks.start_soon(_pass_on, client, upstream, tasks.cancel_scope)
            await _pass_on(upstream, client, tasks.cancel_scope)
            tasks.cancel_scope.cancel()


async def _pass_on(source: SocketStream, sink: SocketStream, both_ways: anyio.CancelScope) -> None:
    """Until the source ends, which the sink is told; a break ends the other way too."""
    try:
        async for chunk in source:
            await sink.send(chunk)
        await sink.send_eof()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        both_ways.cancel()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
