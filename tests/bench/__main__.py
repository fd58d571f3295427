"""`make bench`: run the benchmarks and print tables for docs/performance.md."""

import datetime
import tempfile
from collections.abc import Iterable
from pathlib import Path

import anyio
import click

from tests.bench import idle, live, provider
from tests.bench.beside import run_beside
from tests.bench.idle import run_idle
from tests.bench.live import Live, run_live
from tests.bench.machine import facts
from tests.bench.provider import Streams, run_provider
from tests.bench.queues.scenario import run_queue, run_queue_limit

SCENARIOS = {
    "one": Live(1, 20, 15),
    "many": Live(200, 20, 20),
    "half": Live(500, 20, 15),
    "crowd": Live(1000, 10, 15),
    "storm": Live(1000, 30, 15),
}
PROVIDER = {
    "provider-one": Streams(1, 20, 15),
    "provider-100": Streams(100, 30, 15),
    "provider-300": Streams(300, 30, 15),
    "provider-600": Streams(600, 30, 15),
}
BESIDE = ("one", "many")
QUEUES = {"queue": run_queue, "queue-limit": run_queue_limit}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*SCENARIOS, "idle", *PROVIDER, *QUEUES]))
@click.option("--readers", default=2000, show_default=True, help="Of the idle measurement.")
@click.option("--repeats", default=3, show_default=True, help="Of each emptying of a queue.")
@click.option("--jobs", default=3000, show_default=True, help="Of each emptying of a queue.")
def main(names: tuple[str, ...], readers: int, repeats: int, jobs: int) -> None:
    """Measure. NAMES choose; none means all."""
    print(f"{datetime.date.today()}, {facts()}\n")  # noqa: DTZ011 - the day on the machine's own calendar
    anyio.run(_streams, names or (*SCENARIOS, "idle"), readers)
    anyio.run(_provider, names or PROVIDER)
    anyio.run(_queues, names or QUEUES, repeats, jobs)


async def _streams(names: tuple[str, ...], readers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = [each for each in names if each in SCENARIOS]
        if chosen:
            print(live.HEAD, flush=True)
        for each in chosen:
            print(await run_live(folder, SCENARIOS[each]), flush=True)
            if each in BESIDE:
                for path in ("/plain", "/sse"):
                    print(await run_beside(SCENARIOS[each], path), flush=True)
        if "idle" in names:
            print(f"\n{idle.HEAD}", flush=True)
            print(await run_idle(folder, readers), flush=True)


async def _provider(names: Iterable[str]) -> None:
    chosen = [each for each in names if each in PROVIDER]
    if chosen:
        print(f"\n{provider.HEAD}", flush=True)
    for each in chosen:
        with tempfile.TemporaryDirectory() as folder:
            print(await run_provider(Path(folder), PROVIDER[each]), flush=True)


async def _queues(names: Iterable[str], repeats: int, jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name in QUEUES:
                print()
                await QUEUES[name](Path(folder), repeats, jobs)


if __name__ == "__main__":
    main()
