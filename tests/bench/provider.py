"""From the provider's byte to the committed row: streams of a scripted provider through one worker, no readers."""

import asyncio
import bisect
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psutil

from schema.database import Database, DatabaseSettings
from tests.bench.machine import Bench, start_bench
from tests.bench.stamps import percentiles_ms, stamps_in
from tests.support.api import Job
from tests.support.processes import ServerProcess
from tests.support.waiting import until

# What a scenario may take beyond its own length, before what is missing counts as lost.
OVERTIME_SECONDS = 60
_ADDRESS = re.compile(r"listening on (http://\S+)")


@dataclass(frozen=True, slots=True)
class Streams:
    """So many answers at so many pieces a second each, for so long."""

    calls: int
    rate: float
    seconds: float

    @property
    def pieces(self) -> int:
        """Of one answer."""
        return int(self.rate * self.seconds)

    @property
    def model(self) -> str:
        """For the scripted provider."""
        return f"well?rate={self.rate:g}&pieces={self.pieces}&stamped=1"


HEAD = (
    "| provider streams | pieces | pieces/s | byte to committed row, ms p50 / p99 / most | of the last fifth, p50 "
    "| CPU us a piece: worker, postgres, provider |\n|---|---|---|---|---|---|"
)


async def run_provider(folder: Path, scenario: Streams) -> str:
    """Measure and return one line of a table."""
    async with ServerProcess("scripted_provider", {}, ("--port", "0")) as server:
        await server.launch()
        await server.logs("listening on ")
        found = _ADDRESS.search(server.log_text())
        assert found is not None
        providers = folder / "providers.toml"
        providers.write_text(
            f'[providers.script]\ntype = "openai_chat"\nbase_url = "{found[1]}"\nmodels = ["{scenario.model}"]\n'
        )
        environment = {"OUTLIVE_PROVIDERS": str(providers)}
        async with start_bench(folder, concurrency=scenario.calls + 10, environment=environment) as bench:
            return await _measure(bench, scenario, server)


async def _measure(bench: Bench, scenario: Streams, server: ServerProcess) -> str:
    jobs: list[Job] = []
    for first in range(0, scenario.calls, 20):
        wanted = range(first, min(first + 20, scenario.calls))
        jobs += await asyncio.gather(*(_create(bench) for _ in wanted))
    await bench.worker.launch()
    before = bench.cpu_seconds() | {"provider": _cpu(server.pid)}
    async with Database.open(DatabaseSettings(bench.database_url, bench.database_url, 1)) as database:

        async def all_ended() -> bool:
            sql = "SELECT count(*) FROM outlive.ai_jobs WHERE finished_at IS NULL"
            return bool(await database.fetchval(sql) == 0)

        await until(all_ended, scenario.seconds + OVERTIME_SECONDS)
        after = bench.cpu_seconds() | {"provider": _cpu(server.pid)}
        await bench.worker.stop(within_s=30)
        rows = await database.fetch("SELECT job_id, seq, data FROM outlive.job_events WHERE kind = 'chunk'")
    late = _latenesses([(row["job_id"], row["seq"], row["data"]) for row in rows], bench.commits)
    used = {name: after[name] - before[name] for name in ("worker", "postgres", "provider")}
    return _row(scenario, late, used)


async def _create(bench: Bench) -> Job:
    return await bench.api.create("chat", {"messages": [{"role": "user", "content": "go"}]}, provider="script")


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _latenesses(rows: Sequence[tuple[UUID, int, str]], commits: Path) -> list[tuple[int, int]]:
    """(made, nanoseconds until the commit that has it had returned) of every piece, by the time it was made."""
    ends: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
    for line in commits.read_text().splitlines():
        job, last_seq, at = line.split()
        ends[UUID(job)].append((int(last_seq), int(at)))
    late = []
    for job_id, seq, data in rows:
        found = bisect.bisect_left(ends[job_id], (seq, 0))
        if found < len(ends[job_id]):
            committed = ends[job_id][found][1]
            late += [(made, committed - made) for made in stamps_in(data.encode())]
    return sorted(late)


def _row(scenario: Streams, late: Sequence[tuple[int, int]], used: dict[str, float]) -> str:
    spans = [span for _, span in late]
    all_of, last = percentiles_ms(spans), percentiles_ms(spans[-len(spans) // 5 :])
    seconds = (late[-1][0] - late[0][0]) / 1e9 if len(late) > 1 else 1
    parts = ", ".join(f"{used[name] / max(len(late), 1) * 1e6:.0f}" for name in ("worker", "postgres", "provider"))
    return (
        f"| {scenario.calls} x {scenario.rate:g}/s | {len(late)} of {scenario.calls * scenario.pieces} "
        f"| {len(late) / seconds:,.0f} | {all_of['p50']:.1f} / {all_of['p99']:.1f} / {all_of['most']:.0f} "
        f"| {last['p50']:.1f} | {parts} |"
    )
