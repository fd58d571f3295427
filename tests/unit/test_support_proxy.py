"""The proxy against an echo server, and in front of PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support.proxy import How, Proxy, proxy_to, target_of, through
from tests.support.waiting import NeverHappened, until

pytestmark = pytest.mark.anyio

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo_through_proxy() -> AsyncIterator[Proxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        except OSError:
            writer.transport.abort()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with proxy_to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
            yield proxy
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Ends]:
    parts = urlsplit(proxy.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def arrives_in(reader: asyncio.StreamReader, count: int, within_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(within_s):
            return await reader.readexactly(count)
    except TimeoutError:
        return None


@pytest.mark.parametrize("dribble", [False, True])
async def test_bytes_pass_both_ways(dribble: bool) -> None:
    async with echo_through_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.dribble = dribble
        writer.write(b"hello world")
        assert await reader.readexactly(11) == b"hello world"
        writer.write_eof()
        assert await reader.read() == b""
        assert proxy.accepted == 1


async def test_a_delay_delays() -> None:
    async with echo_through_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.delay_s = 0.1
        began = asyncio.get_running_loop().time()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert asyncio.get_running_loop().time() - began >= 0.2


async def test_a_frozen_proxy_takes_all_and_gives_nothing_until_it_thaws() -> None:
    async with echo_through_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.freeze()
        writer.write(b"held")
        async with connected(proxy) as (late_reader, late_writer):
            late_writer.write(b"late")
            assert await arrives_in(reader, 4, within_s=0.2) is None
            assert proxy.accepted == 2
            proxy.thaw()
            assert await reader.readexactly(4) == b"held"
            assert await late_reader.readexactly(4) == b"late"


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_cut_at_a_byte_lets_exactly_so_many_pass(how: How) -> None:
    async with echo_through_proxy() as proxy:
        proxy.cut_next_after(5, how)
        proxy.cut_next_after(7, how)
        for bound in (5, 7):
            async with connected(proxy) as (reader, writer):
                writer.write(b"0123456789")
                assert await reader.readexactly(bound) == b"0123456789"[:bound]
                if how == "rst":
                    with pytest.raises(ConnectionResetError):
                        await reader.read()
                else:
                    assert await reader.read() == b""
        async with connected(proxy) as (reader, writer):
            writer.write(b"0123456789")
            assert await reader.readexactly(10) == b"0123456789"


async def test_a_cut_now_ends_all() -> None:
    async with echo_through_proxy() as proxy, connected(proxy) as one, connected(proxy) as two:
        for reader, writer in (one, two):
            writer.write(b"x")
            await reader.readexactly(1)
        assert proxy.connections == 2
        proxy.cut()
        for reader, _ in (one, two):
            with pytest.raises(ConnectionResetError):
                await reader.read()
        await until(lambda: proxy.connections == 0)


async def test_a_target_that_is_not_there_ends_the_connection() -> None:
    async with proxy_to("http://127.0.0.1:1") as proxy, connected(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_postgresql_passes_and_freezes(empty_database_url: str) -> None:
    async with proxy_to(empty_database_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        assert await connection.fetchval("SELECT 7") == 7
        proxy.freeze()
        with pytest.raises(TimeoutError):
            await connection.fetchval("SELECT 8", timeout=0.2)
        proxy.thaw()
        connection.terminate()


def test_addresses() -> None:
    unix = "postgresql://postgres@/jobs?host=/tmp/a&port=5433"
    assert target_of(unix) == "/tmp/a/.s.PGSQL.5433"
    assert through(unix, 9) == "postgresql://postgres@127.0.0.1:9/jobs"
    tcp = "postgresql://me:pw@db:5555/jobs?application_name=x"
    assert target_of(tcp) == ("db", 5555)
    assert through(tcp, 9) == "postgresql://me:pw@127.0.0.1:9/jobs?application_name=x"
    assert through("http://localhost:8080/a?b=c", 9) == "http://127.0.0.1:9/a?b=c"


async def test_waiting_gives_up_with_what_it_saw() -> None:
    with pytest.raises(NeverHappened, match="the moon did not happen within 0 s; the last look gave 0"):
        await until(lambda: 0, 0, what="the moon")
