"""A task in a thread with an event loop of its own, so that nothing that blocks ours delays it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

# For what it has open to be closed; past that the thread is left behind, where it can keep no process from ending.
STOP_SECONDS = 2.0


class SideLoop:
    """Runs `work` once, beside the loop in which it is made and `run`."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        # A daemon: a PostgreSQL that answers nothing must not hold up the end of the process.
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._home = asyncio.get_running_loop()
        self._ended = anyio.Event()
        self._is_stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Until `work` has ended; a cancellation is passed on to it. Raises what it died of."""
        self._thread.start()
        try:
            await self._ended.wait()
        finally:
            self._stop()
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                await self._ended.wait()
        if self._error is not None:
            raise self._error

    def _stop(self) -> None:
        self._is_stopped = True
        if self._loop is not None:
            _call(self._loop, self._scope.cancel)

    def _live(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            self._error = error
        _call(self._home, self._ended.set)

    async def _main(self) -> None:
        self._scope = anyio.CancelScope()
        self._loop = asyncio.get_running_loop()
        # Either this sees the stop, or the stop sees the loop.
        if not self._is_stopped:
            with self._scope:
                await self._work()


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    """In that loop, if it is there still."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(what)
