"""Whether this process can do its work: the version of the tables, the database, LISTEN."""

import anyio
import structlog

from schema.database import DatabaseSettings
from schema.errors import DatabaseUnavailable, SchemaNotReady, SchemaTooNew
from schema.listener import Listener
from schema.migrate import check_version, version

# While it waits for a migration, somebody waits for it; later it only looks after itself.
WAITING_SECONDS = 0.5
LOOK_SECONDS = 2

log = structlog.get_logger()


class Readiness:
    """`started` once everything was there, and then for ever; `trouble` is a phrase, or empty where all is well."""

    def __init__(self, settings: DatabaseSettings, listener: Listener) -> None:
        self._settings = settings
        self._listener = listener
        self.started = False
        self.trouble = "has not yet reached the database"
        self.database_up = False
        self.out_of_range = False

    @property
    def listen_up(self) -> bool:
        """Whether hints come in; without them streams are up to 1.5 s late."""
        return self._listener.up

    async def run(self) -> None:
        """Look at the tables' version until cancelled.

        Raises SchemaTooNew, PoolerRefused where this process cannot begin at all.
        """
        while True:
            try:
                await self._look()
            except SchemaTooNew:
                if not self.started:
                    raise
            await anyio.sleep(LOOK_SECONDS if self.started else WAITING_SECONDS)

    async def _look(self) -> None:
        try:
            found = await version(self._settings.direct_url)
            self.database_up = True
            check_version(found)
            if not self.started:
                await self._listener.check_address()
        except DatabaseUnavailable as error:
            self.database_up = False
            self._say("cannot reach the database", str(error))
        except (SchemaNotReady, SchemaTooNew) as error:
            self.out_of_range = True
            self._say("waits for another version of the tables", str(error))
            if isinstance(error, SchemaTooNew):
                raise
        else:
            self.out_of_range, self.started = False, True
            self._say("", "")

    def _say(self, trouble: str, why: str) -> None:
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            log.warning("not ready", trouble=trouble, why=why)
        else:
            log.info("ready")
