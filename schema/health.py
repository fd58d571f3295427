"""What `python -m schema check` looks at, each finding one sentence that says what to do."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from schema.database import Database, DatabaseSettings
from schema.errors import DatabaseUnavailable, PoolerRefused, SchemaNotReady, SchemaTooNew
from schema.listener import Listener
from schema.migrate import NEWEST_VERSION, check_version, version
from schema.partitions import missing_partitions
from schema.statements import statement

OLDEST_POSTGRES = 150_000
NEWEST_POSTGRES = 190_000
# Ids carry the maker's time; a gateway this far off makes lists look out of order.
CLOCK_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    text: str
    is_fault: bool = False

    def __str__(self) -> str:
        return f"{'fault' if self.is_fault else 'ok   '}  {self.text}"


async def examine(settings: DatabaseSettings) -> list[Finding]:
    """Look at version, address, settings, clock and partitions. Raises DatabaseUnavailable."""
    findings = [await _version(settings), await _address(settings)]
    if findings[0].is_fault:
        return findings
    async with Database.open(settings) as database:
        return [*findings, *await _server(database), await _partitions(database)]


async def _version(settings: DatabaseSettings) -> Finding:
    found = await version(settings.direct_url)
    try:
        check_version(found)
    except (SchemaNotReady, SchemaTooNew) as error:
        return Finding(str(error), is_fault=True)
    return Finding(f"schema version {found} of {NEWEST_VERSION}")


async def _address(settings: DatabaseSettings) -> Finding:
    try:
        await Listener(settings, {}, lambda: None).check_address()
    except (PoolerRefused, DatabaseUnavailable) as error:
        return Finding(str(error), is_fault=True)
    return Finding("LISTEN works on this address")


async def _server(database: Database) -> list[Finding]:
    row = await database.fetchrow(statement("server_facts"))
    assert row is not None
    off_s = abs((datetime.now(UTC) - row["now"]) / timedelta(seconds=1))
    return [
        Finding(f"PostgreSQL {row['version_text']}")
        if OLDEST_POSTGRES <= row["version"] < NEWEST_POSTGRES
        else Finding(f"PostgreSQL {row['version_text']} is not 15 to 18; use one of these", is_fault=True),
        Finding("commits are durable (fsync and synchronous_commit on)")
        if row["durable"]
        else Finding("a crash can take back what readers saw; set fsync and synchronous_commit on", is_fault=True),
        Finding(f"the clocks agree ({off_s:.1f} s)")
        if off_s < CLOCK_SECONDS
        else Finding(f"this clock and PostgreSQL's differ by {off_s:.0f} s; correct the wrong one", is_fault=True),
        Finding("the notification queue is empty")
        if row["queue_usage"] < 0.001
        else Finding(
            f"the notification queue is {row['queue_usage']:.1%} full: a listener stands still; "
            "look for one idle in a transaction in pg_stat_activity",
            is_fault=True,
        ),
    ]


async def _partitions(database: Database) -> Finding:
    missing = await missing_partitions(database)
    if missing:
        return Finding(
            f"partitions are missing ({', '.join(missing)}); run `python -m schema maintain`", is_fault=True
        )
    return Finding("the partitions of the coming weeks are there")
