"""Waiting for the tables: a process that is too early stands by, unready, and says so."""

import anyio
import structlog

from schema.database import DatabaseSettings
from schema.errors import DatabaseUnavailable, SchemaNotReady
from schema.migrate import check_version, version

# A roll-out is waited for; the log repeats itself this often meanwhile.
LOOK_SECONDS = 1.0
SAY_SECONDS = 15.0

log = structlog.get_logger()


async def wait_for_schema(settings: DatabaseSettings) -> None:
    """Return once the tables are there. Raises SchemaTooNew where this program is older than they are."""
    said_at = -SAY_SECONDS
    while True:
        try:
            check_version(await version(settings.direct_url))
        except (SchemaNotReady, DatabaseUnavailable) as error:
            if anyio.current_time() - said_at >= SAY_SECONDS:
                log.warning("waiting for the schema", error=str(error))
                said_at = anyio.current_time()
            await anyio.sleep(LOOK_SECONDS)
        else:
            return
