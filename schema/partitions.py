"""Weekly partitions of the log, made ahead: there is no default one, so an insert without its week fails."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from schema.executor import Executor
from schema.job_ids import first_id_of
from schema.statements import statement

WEEK = timedelta(days=7)
# A maintenance that stands still for a month is noticed by then; each empty partition costs a relation lock.
WEEKS_AHEAD = 4


def _week_of(moment: datetime) -> datetime:
    """Monday 00:00 UTC of the week of `moment`."""
    day = moment.astimezone(UTC)
    monday = day - timedelta(days=day.weekday())
    return monday.replace(hour=0, minute=0, second=0, microsecond=0)


def _weeks(now: datetime) -> Iterator[tuple[str, datetime]]:
    """(name, start) from last week, because a gateway's clock may be behind, to WEEKS_AHEAD."""
    first = _week_of(now) - WEEK
    for week in (first + WEEK * n for n in range(WEEKS_AHEAD + 2)):
        yield f"job_events_{week:%Y%m%d}", week


async def make_partitions(executor: Executor, now: datetime | None = None) -> list[str]:
    """Make the partitions that are missing; returns their names."""
    made = []
    for name, week in _weeks(now or datetime.now(UTC)):
        row = await executor.fetchrow(
            statement("make_event_partition"), name, first_id_of(week), first_id_of(week + WEEK)
        )
        if row["made"]:
            made.append(name)
    return made


async def missing_partitions(executor: Executor, now: datetime | None = None) -> list[str]:
    """The names of those that an insert of the coming weeks would miss."""
    names = [name for name, _ in _weeks(now or datetime.now(UTC))]
    return [row["name"] for row in await executor.fetch(statement("missing_partitions"), names)]
