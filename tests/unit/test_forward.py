"""web-demo/forward.py, which stands before the page in compose.yaml."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.support.waiting import until

FORWARD = Path(__file__).resolve().parents[2] / "web-demo/forward.py"

pytestmark = pytest.mark.anyio


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def accepts(port: int) -> bool:
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False


@asynccontextmanager
async def forwarder(target: int) -> AsyncIterator[int]:
    port = free_port()
    command = [sys.executable, str(FORWARD), f"127.0.0.1:{port}", f"127.0.0.1:{target}"]
    async with await anyio.open_process(command, stdout=subprocess.DEVNULL) as process:
        try:
            await until(lambda: accepts(port))
            yield port
        finally:
            process.terminate()


async def answer_at_its_end(client: SocketStream) -> None:
    """Sends back all that it got, once the other side has nothing more to say."""
    async with client:
        got = b"".join([chunk async for chunk in client])
        await client.send(b"got " + got)


@asynccontextmanager
async def target_of(serve: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield int(listener.extra(SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


async def test_bytes_pass_both_ways_and_so_does_an_end() -> None:
    body = b"x" * 1_000_000
    async with (
        target_of(answer_at_its_end) as target,
        forwarder(target) as port,
        await anyio.connect_tcp("127.0.0.1", port) as client,
    ):
        await client.send(body)
        await client.send_eof()
        assert b"".join([chunk async for chunk in client]) == b"got " + body


async def test_a_client_that_goes_away_is_gone_for_the_target_too() -> None:
    gone = anyio.Event()

    async def wait_for_the_end(client: SocketStream) -> None:
        async with client:
            if b"".join([chunk async for chunk in client]) == b"hello":
                gone.set()

    async with target_of(wait_for_the_end) as target, forwarder(target) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            await client.send(b"hello")
        with anyio.fail_after(10):
            await gone.wait()


async def test_without_a_target_the_connection_just_closes() -> None:
    async with forwarder(free_port()) as port, await anyio.connect_tcp("127.0.0.1", port) as client:
        assert [chunk async for chunk in client] == []
