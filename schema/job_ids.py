"""Job ids: UUIDv7 of RFC 9562, so that time orders them and chooses the partition of their events.

Made here and never taken from a caller: a chosen id could aim at a partition that is not there.
"""

import secrets
import time
from datetime import UTC, datetime
from typing import NewType
from uuid import UUID

JobId = NewType("JobId", UUID)

_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62


def new_job_id() -> JobId:
    """A fresh id of this moment; 74 of its bits are random."""
    random = secrets.randbits(74)
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | _VERSION | (random >> 62) << 64 | _VARIANT
    return JobId(UUID(int=value | random & (1 << 62) - 1))


def first_id_of(moment: datetime) -> UUID:
    """The smallest value that any id made at or after `moment` can have: a partition's bound."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def created_at(job_id: UUID) -> datetime:
    """When `job_id` was made, in UTC to the millisecond, by the clock of its maker."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)


def parse_job_id(text: str) -> JobId | None:
    """`text` as an id where it has the canonical form of one, else None."""
    try:
        value = UUID(text)
    except ValueError:
        return None
    return JobId(value) if str(value) == text else None
