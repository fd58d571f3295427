"""The one LISTEN connection of a process.

    connect -> LISTEN -> on_reset (everything may have changed) -> hints ... -> lost -> wait -> connect ...

It stands outside the pool and outside any transaction: a pooled connection forgets its listeners, and an open
transaction on it would pin the notification queue of the whole cluster. A dead server closes the connection; a
black-holed one does not, so the listener sends itself a ping and expects it back.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import asyncpg
import stamina
import structlog

from schema.database import CONNECT_SECONDS, DatabaseSettings, check_isolation, translated
from schema.errors import DatabaseUnavailable, PoolerRefused
from schema.statements import statement

# Silence that long is looked into; the readers' own poll of 1 to 2 s bounds what it can cost.
PING_SECONDS = 10.0
PONG_SECONDS = 3.0
RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_MOST_SECONDS = 5.0

log = structlog.get_logger()


class ListenerLost(DatabaseUnavailable):
    """The LISTEN connection is gone or silent; it is opened again."""


class Listener:
    """Calls `channels[name](payload)` for each hint and `on_reset()` whenever hints may have been lost.

    Both are called in the event loop's own thread and must not wait.
    """

    def __init__(
        self,
        settings: DatabaseSettings,
        channels: Mapping[str, Callable[[str], None]],
        on_reset: Callable[[], None],
        ping_s: float = PING_SECONDS,
    ) -> None:
        self._settings = settings
        self._channels = channels
        self._on_reset = on_reset
        self._ping_s = ping_s
        self._ping_channel = f"outlive_ping_{secrets.token_hex(8)}"
        self._pong = anyio.Event()
        self.up = False

    async def check_address(self) -> None:
        """Raise PoolerRefused where a pooler forbids what we need, DatabaseUnavailable where nothing works."""
        await check_isolation(self._settings)
        async with self._session() as connection:
            if await connection.fetchval(statement("is_standby")):
                raise ListenerLost("this PostgreSQL is a standby, which cannot LISTEN; name the primary")
            try:
                await self._ping(connection)
            except ListenerLost:
                raise PoolerRefused from None

    async def run(self) -> None:
        """Listen until cancelled, opening the connection again as often as it takes."""
        while True:
            async for attempt in stamina.retry_context(
                on=DatabaseUnavailable,
                attempts=None,
                timeout=None,
                wait_initial=RECONNECT_FIRST_SECONDS,
                wait_max=RECONNECT_MOST_SECONDS,
                wait_jitter=RECONNECT_FIRST_SECONDS,
            ):
                with attempt:
                    await self._listen()

    async def _listen(self) -> None:
        """One connection's life; returns only after it has worked, so that the next one is tried at once."""
        try:
            async with self._session() as connection:
                lost = anyio.Event()
                connection.add_termination_listener(lambda _: lost.set())
                await self._ping(connection)
                self.up = True
                self._on_reset()
                await self._watch(connection, lost)
        except DatabaseUnavailable as error:
            log.warning("listener lost", error=str(error))
            if not self.up:
                raise
        finally:
            self.up = False

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[asyncpg.Connection]:
        with translated():
            connection = await asyncpg.connect(
                self._settings.direct_url, timeout=CONNECT_SECONDS, command_timeout=PONG_SECONDS
            )
            try:
                for name, heard in self._channels.items():
                    await connection.add_listener(name, _hearing(heard))
                await connection.add_listener(self._ping_channel, _hearing(self._hear_pong))
                yield connection
            finally:
                # Terminate: a goodbye to a black hole would wait for its answer.
                connection.terminate()

    def _hear_pong(self, _payload: str) -> None:
        self._pong.set()

    async def _ping(self, connection: asyncpg.Connection) -> None:
        """Prove the whole way through the server's queue and back."""
        self._pong = anyio.Event()
        with anyio.move_on_after(PONG_SECONDS):
            await connection.fetchval(statement("notify"), self._ping_channel, "")
            await self._pong.wait()
            return
        raise ListenerLost("the LISTEN connection gave no answer")

    async def _watch(self, connection: asyncpg.Connection, lost: anyio.Event) -> None:
        while not lost.is_set():
            with anyio.move_on_after(self._ping_s):
                await lost.wait()
            if not lost.is_set():
                await self._ping(connection)
        raise ListenerLost("the LISTEN connection was closed")


def _hearing(heard: Callable[[str], None]) -> Callable[[object, int, str, str], None]:
    return lambda _connection, _pid, _channel, payload: heard(payload)
