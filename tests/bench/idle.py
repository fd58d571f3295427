"""What readers cost that have nothing to read: memory and CPU of the gateway with many open streams."""

import time
from pathlib import Path

import anyio

from tests.bench.machine import start_bench
from tests.bench.readers import open_readers

JOBS = 100
MEASURED_SECONDS = 20


async def run_idle(folder: Path, readers: int) -> str:
    """Open `readers` streams on queued jobs and return one line."""
    async with start_bench(folder, concurrency=1) as bench:
        jobs = [await bench.api.create("stamps", {"pieces": 1, "gap_ms": 1}) for _ in range(JOBS)]
        urls = [bench.api.events_url(jobs[number % JOBS]) for number in range(readers)]
        before = bench.gateway_bytes()
        opened = await open_readers(urls)
        grown, cpu, began = bench.gateway_bytes() - before, bench.cpu_seconds()["gateway"], time.monotonic()
        await anyio.sleep(MEASURED_SECONDS)
        share = (bench.cpu_seconds()["gateway"] - cpu) / (time.monotonic() - began)
        for reader, _ in opened:
            reader.close()
        each_kib = grown / readers / 1024
        return f"| {readers} idle readers of {JOBS} jobs | {each_kib:.1f} KiB each | {share:.1%} of a core |"


HEAD = "| idle | gateway's memory | gateway's CPU |\n|---|---|---|"
