"""Connections that say nothing, or say it too slowly, are closed; the others are left alone."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from itertools import chain, repeat

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from gateway import connection, server
from gateway.settings import GatewaySettings
from schema.database import DatabaseSettings
from tests.support.servers import SECRET
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE_S = 0.3
# Not that of its admin port, which it says before.
_GATEWAY = re.compile(r"outlive gateway listening on http://127\.0\.0\.1:(\d+)")


@pytest.fixture
async def port(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[int]:
    """Of a gateway in this very process, since only there its patience can be made short."""
    monkeypatch.setattr(connection, "REQUEST_SECONDS", PATIENCE_S)
    settings = GatewaySettings(DatabaseSettings(database_url, database_url, 2), (SECRET,), port=0, admin_port=0)
    said: list[str] = []

    def listening() -> re.Match[str] | None:
        said.append(capsys.readouterr().out)
        return _GATEWAY.search("".join(said))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, settings)
        found = await until(listening)
        assert found is not None
        yield int(found[1])
        tasks.cancel_scope.cancel()


async def closed(stream: ByteStream) -> bool:
    """Until the server closes it; the test's own time-out is far longer than its patience."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return True


async def dribble(stream: ByteStream) -> None:
    """A request without end, byte by byte, each well within the patience."""
    with suppress(anyio.BrokenResourceError):
        for byte in chain(HEAD.removesuffix(b"\r\n"), b"X: ", repeat(ord("x"))):
            await stream.send(bytes([byte]))
            await anyio.sleep(PATIENCE_S / 3)


async def test_a_connection_without_a_request_is_closed(port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        assert await closed(stream)


@pytest.mark.parametrize("before", [b"", HEAD])
async def test_a_request_that_dribbles_is_closed(port: int, before: bytes) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        if before:
            await stream.send(before)
            assert b" 200 " in await stream.receive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dribble, stream)
            assert await closed(stream)
            tasks.cancel_scope.cancel()


async def test_a_connection_that_is_used_stays_open_between_requests(port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for _ in range(3):
            await stream.send(HEAD)
            assert b" 200 " in await stream.receive()
            await anyio.sleep(PATIENCE_S * 2)


async def longest_turn_s(until: anyio.Event) -> float:
    """What one turn of the loop, which the gateway shares with this test, took of the CPU at most."""
    longest, before = 0.0, time.thread_time()
    while not until.is_set():
        await anyio.lowlevel.checkpoint()
        longest, before = max(longest, time.thread_time() - before), time.thread_time()
    return longest


async def test_chunks_of_one_byte_hold_nobody_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read of them was 43,000 events of the parser, and 3 s in which no stream moved."""
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 30)
    answered = anyio.Event()

    async def flood() -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            await stream.send(b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n" + HEAD)
            while b" 200 " not in await stream.receive():
                pass
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flood)
        assert await longest_turn_s(answered) < 0.5


@pytest.mark.parametrize("reads_some", [False, True])
async def test_a_client_that_takes_no_answers_is_cut(
    port: int, reads_some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then kept the kernel's own limit from it, for ever."""
    monkeypatch.setattr(connection, "UNTAKEN_SECONDS", PATIENCE_S)
    with anyio.fail_after(PATIENCE_S * 50), pytest.raises(ExceptionGroup) as caught:
        await ask_and_take_nothing(port, reads_some)
    assert caught.group_contains(ConnectionError)


async def ask_and_take_nothing(port: int, reads_some: bool) -> None:
    """Raises a group with ConnectionError when the server has had enough."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_for_ever, client)
            if reads_some:
                tasks.start_soon(sip, client)


async def ask_for_ever(client: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(client, HEAD.replace(b"livez", b"x" * 200) * 50)


async def sip(client: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_recv(client, 1)
        await anyio.sleep(PATIENCE_S / 3)


async def all_of(stream: ByteStream) -> bytes:
    received = bytearray()
    try:
        while True:
            received += await stream.receive()
    except anyio.EndOfStream:
        return bytes(received)


async def test_two_lengths_are_no_request(port: int) -> None:
    """A proxy that believes the other length takes the second request for a body."""
    request = b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request + HEAD)
        answers = await all_of(stream)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b" 400 " in answers
    assert b'"bad_request"' in answers


async def test_a_cookie_of_backslashes_holds_nobody_up(port: int) -> None:
    """Python's parser took 13 s for it, in the event loop and before any credential was looked at."""
    request = b'GET /api/ai/jobs HTTP/1.1\r\nHost: x\r\nCookie: a="' + b"\\" * 60_000 + b'"\r\n\r\n'
    answered = anyio.Event()

    async def ask() -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            # Until the gateway has seen its tables it does not look at credentials.
            answer = b" 503 "
            while b" 503 " in answer:
                await stream.send(request)
                answer = await stream.receive()
            assert b" 401 " in answer
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        assert await longest_turn_s(answered) < 2


async def test_a_gateway_that_is_cancelled_leaves_nothing_to_its_loop(database_url: str) -> None:
    """Its listening sockets were closed behind the loop's back: the next one with their numbers was never heard."""
    for _ in range(3):
        found: list[str] = []
        settings = GatewaySettings(DatabaseSettings(database_url, database_url, 2), (SECRET,), port=0, admin_port=0)
        async with anyio.create_task_group() as tasks:
            with redirect_stdout(StringIO()) as said:
                tasks.start_soon(server.serve, settings)
                found += await until(lambda: _GATEWAY.findall(said.getvalue()))
            async with await anyio.connect_tcp("127.0.0.1", int(found[0])) as stream:
                await stream.send(HEAD)
                assert b" 200 " in await stream.receive()
            tasks.cancel_scope.cancel()
