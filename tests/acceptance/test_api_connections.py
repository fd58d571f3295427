"""Connections that say nothing, or say it too slowly, are closed; the others are left alone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.abc import ByteStream

from gateway import server
from gateway.settings import GatewaySettings
from schema.database import DatabaseSettings
from tests.support.servers import SECRET
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENCE_S = 0.3


@pytest.fixture
async def port(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[int]:
    """Of a gateway in this very process, since only there its patience can be made short."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", PATIENCE_S)
    settings = GatewaySettings(DatabaseSettings(database_url, database_url, 2), (SECRET,), port=0)
    said: list[str] = []

    def listening() -> re.Match[str] | None:
        said.append(capsys.readouterr().out)
        return re.search(r"listening on http://127\.0\.0\.1:(\d+)", "".join(said))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, settings)
        found = await until(listening)
        assert found is not None
        yield int(found[1])
        tasks.cancel_scope.cancel()


async def closed(stream: ByteStream) -> bool:
    """Whether the server closes it within a time that is far longer than its patience."""
    with anyio.move_on_after(PATIENCE_S * 20):
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
    return False


async def dribble(stream: ByteStream, text: bytes) -> None:
    """Byte by byte, each well within the patience, all of it well beyond."""
    with anyio.move_on_after(PATIENCE_S * 20):
        try:
            for byte in text:
                await stream.send(bytes([byte]))
                await anyio.sleep(PATIENCE_S / 3)
        except anyio.BrokenResourceError:
            return


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
            tasks.start_soon(dribble, stream, HEAD)
            assert await closed(stream)
            tasks.cancel_scope.cancel()


async def test_a_connection_that_is_used_stays_open_between_requests(port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for _ in range(3):
            await stream.send(HEAD)
            assert b" 200 " in await stream.receive()
            await anyio.sleep(PATIENCE_S * 2)
