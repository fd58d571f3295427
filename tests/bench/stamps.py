"""Pieces that carry the moment at which they were made, and what their arrival says."""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_STAMP = re.compile(rb"t(\d{10,})#")


def stamps_in(data: bytes) -> Iterable[int]:
    """The moments of all pieces in `data`, in nanoseconds."""
    return map(int, _STAMP.findall(data))


@dataclass(slots=True)
class Arrivals:
    """What one reader got: (event id, arrival) of each event, (made, arrived) of each piece; nanoseconds."""

    events: list[tuple[int, int]] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)
    gaps: int = 0
    finished: bool = False


def percentiles_ms(nanoseconds: Sequence[int]) -> dict[str, float]:
    """p50, p99 and the most, in milliseconds."""
    if len(nanoseconds) < 2:
        return {"p50": float("nan"), "p99": float("nan"), "most": float("nan")}
    cuts = statistics.quantiles(nanoseconds, n=100)
    return {"p50": cuts[49] / 1e6, "p99": cuts[98] / 1e6, "most": max(nanoseconds) / 1e6}
