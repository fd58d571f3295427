"""`make bench`: run the benchmarks and print tables for docs/performance.md."""

import datetime
import tempfile
from pathlib import Path

import anyio
import click

from tests.bench import idle, live
from tests.bench.beside import run_beside
from tests.bench.idle import run_idle
from tests.bench.live import Live, run_live
from tests.bench.machine import facts

SCENARIOS = {
    "one": Live(1, 20, 15),
    "many": Live(200, 20, 20),
    "half": Live(500, 20, 15),
    "crowd": Live(1000, 10, 15),
    "storm": Live(1000, 30, 15),
}
BESIDE = ("one", "many")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*SCENARIOS, "idle"]))
@click.option("--readers", default=2000, show_default=True, help="Of the idle measurement.")
def main(names: tuple[str, ...], readers: int) -> None:
    """Measure. NAMES choose; none means all."""
    print(f"{datetime.date.today()}, {facts()}\n")  # noqa: DTZ011 - the day on the machine's own calendar
    anyio.run(_all, names or (*SCENARIOS, "idle"), readers)


async def _all(names: tuple[str, ...], readers: int) -> None:
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


if __name__ == "__main__":
    main()
