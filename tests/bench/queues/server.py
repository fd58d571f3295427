"""The PostgreSQL that all contenders share, and its CPU."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import asyncpg
import psutil
from anyio import to_thread

from tests.support.databases import in_database
from tests.support.postgres import Address, HeldPostgres


@asynccontextmanager
async def durable_server() -> AsyncIterator[Address]:
    """Embedded; fsync, full_page_writes and synchronous_commit are on, as by default."""
    held = HeldPostgres(fast=False)
    held.start()
    try:
        yield await to_thread.run_sync(held.address)
    finally:
        await to_thread.run_sync(held.close)


@asynccontextmanager
async def fresh_database(server: Address) -> AsyncIterator[str]:
    """The address of an empty database; it goes with the block, so that nobody inherits another's vacuum."""
    name = f"bench_{uuid4().hex}"
    await ask(server.url, f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield in_database(server.url, name)
    finally:
        await ask(server.url, f"DROP DATABASE {name} WITH (FORCE)")


async def ask(url: str, sql: str) -> object:
    """The first value of what one statement gives, on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def cpu_seconds(server: Address) -> float:
    """What PostgreSQL and all its processes have used so far, those that have ended among them."""
    postmaster = psutil.Process(server.postmaster_pid)
    used = sum(postmaster.cpu_times()[:4])
    for process in postmaster.children():
        # One that has just ended is in the postmaster's own figures.
        with suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:2])
    return float(used)
