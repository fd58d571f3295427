"""When handlers began, noted in the worker's process and read in that of the bench.

CLOCK_MONOTONIC is one for all processes of a machine, so that an enqueue there and a start here can be compared.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

FILE = "OUTLIVE_BENCH_STARTS"
EXPECTED = "OUTLIVE_BENCH_EXPECTED"


def asked_for(path: Path, expected: int) -> dict[str, str]:
    """The environment of a worker that is to note `expected` starts in `path`."""
    return {FILE: str(path), EXPECTED: str(expected)}


@dataclass(frozen=True, slots=True)
class Started:
    """`at_ns`: job number -> its start, in nanoseconds; `cpu_s`: what the process used from the first to the last."""

    at_ns: dict[int, int]
    cpu_s: float


class Starts:
    """The handler's side. The file is there, whole, once all that are expected have begun."""

    def __init__(self) -> None:
        self._path = Path(os.environ[FILE])
        self._expected = int(os.environ[EXPECTED])
        self._moments: list[tuple[int, int]] = []
        self._cpu_s = 0.0

    def note(self, number: int) -> None:
        """Job `number` begins now."""
        self._moments.append((number, time.monotonic_ns()))
        if len(self._moments) == 1:
            self._cpu_s = time.process_time()
        if len(self._moments) == self._expected:
            self._write(time.process_time() - self._cpu_s)

    def _write(self, cpu_s: float) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_bytes(orjson.dumps({"moments": self._moments, "cpu_s": cpu_s}))
        unfinished.rename(self._path)


def read_starts(path: Path) -> Started:
    """What a worker has noted."""
    noted = orjson.loads(path.read_bytes())
    return Started(dict(noted["moments"]), noted["cpu_s"])
