"""The same pieces without Outlive: streams that keep nothing, in the same run and with the same readers."""

import asyncio
import os
import socket
import sys
from contextlib import closing

import psutil

from tests.bench.live import OVERTIME_SECONDS, Live, row
from tests.bench.readers import open_readers
from tests.support.waiting import until


async def run_beside(scenario: Live, path: str) -> str:
    """Measure `/plain` or `/sse` of naive.py and return one line of the table."""
    port = _free_port()
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.naive", str(port))
    try:
        await until(lambda: _answers(port), 15, what="the naive server")
        process, client = psutil.Process(server.pid), psutil.Process(os.getpid())
        before = [sum(each.cpu_times()[:2]) for each in (process, client)]
        readers = await open_readers([f"http://127.0.0.1:{port}{path}?{scenario.query}"] * scenario.jobs)
        await asyncio.wait([reader.ended for reader, _ in readers], timeout=scenario.seconds + OVERTIME_SECONDS)
        after = [sum(each.cpu_times()[:2]) for each in (process, client)]
        for reader, _ in readers:
            reader.close()
    finally:
        server.terminate()
        await server.wait()
    used = {"server": after[0] - before[0], "client": after[1] - before[1]}
    return row(f"{scenario}, nothing kept, {path}", scenario, [got for _, got in readers], used, [])


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with closing(socket.socket()) as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
