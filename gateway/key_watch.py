"""API keys that opened streams: what a key opened ends soon after the key was revoked."""

from uuid import UUID

import anyio
import structlog

from gateway.wheel import Wheel
from schema.database import Database
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.tenants import revoked_keys

# Streams of a revoked key end within a minute (docs/protocol.md 2); one query for all keys each time.
LOOK_SECONDS = 20.0

log = structlog.get_logger()


class KeyWatch:
    """Remembers each key that opened a stream, which is as many as there are keys; `run` is its task."""

    def __init__(self, database: Database, wheel: Wheel, look_s: float = LOOK_SECONDS) -> None:
        self._database = database
        self._wheel = wheel
        self._look_s = look_s
        self._seen: set[UUID] = set()
        self._revoked: set[UUID] = set()

    def note(self, key_id: UUID) -> None:
        """This key opened a stream."""
        self._seen.add(key_id)

    def is_revoked(self, key_id: UUID | None) -> bool:
        """Whether it was revoked since, as far as the last look knows."""
        return key_id in self._revoked

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await anyio.sleep(self._look_s)
            try:
                revoked = await revoked_keys(self._database, self._seen) if self._seen else set()
            except (DatabaseUnavailable, DatabaseBusy) as error:
                log.warning("keys not looked up", error=str(error))
                continue
            self._seen -= revoked
            self._revoked |= revoked
            if revoked:
                self._wheel.wake_all()
