"""Waiting at the end of one log, inside a request that will answer with one body.

It waits as the streams do: at the job's tail, with no connection of the pool in hand, and no longer than the process
goes on serving.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import anyio

from gateway.gateway import Gateway
from gateway.streaming import read_block
from gateway.tails import Tail
from gateway.wheel import Pulse
from schema.events import Event, read_after


@dataclass(frozen=True, slots=True)
class _Watch:
    pulse: Pulse
    tail: Tail


@contextmanager
def _watching(gateway: Gateway, job_id: UUID, wait_s: float) -> Iterator[_Watch]:
    """The block is left silently when the time is over."""
    with (
        anyio.move_on_after(wait_s) as waiting,
        gateway.wheel.turning(waiting) as pulse,
        gateway.tailer.watch(job_id, pulse) as tail,
    ):
        yield _Watch(pulse, tail)


async def wait_for_events(gateway: Gateway, job_id: UUID, cursor: int, limit: int, wait_s: float) -> list[Event]:
    """The first events after the cursor; none where nothing came in time or the process is about to end."""
    with _watching(gateway, job_id, wait_s) as watch:
        while not gateway.draining.is_set():
            watch.pulse.look()
            if events := await read_after(gateway.database, job_id, cursor, limit):
                return events
            gateway.tailer.seed(watch.tail, cursor)
            await watch.pulse.wait()
    return []


async def wait_for_end(gateway: Gateway, job_id: UUID, cursor: int, wait_s: float) -> None:
    """Return when the log has ended, the time is over or the process is about to end; `cursor` is a place in the log.

    Raises DatabaseUnavailable, DatabaseBusy, LogBroken.
    """
    with _watching(gateway, job_id, wait_s) as watch:
        while not gateway.draining.is_set():
            watch.pulse.look()
            block, is_all = await read_block(gateway.database, gateway.tailer, watch.tail, cursor)
            cursor = block.last_seq
            if block.finished:
                return
            if is_all:
                await watch.pulse.wait()
