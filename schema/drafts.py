"""What can stand in a log: the kinds of events, and an event that has no place yet."""

from dataclasses import dataclass
from enum import StrEnum

from schema.json_line import json_line


class EventKind(StrEnum):
    """What stands in the log. CHANNEL is a chunk beside the text: its SSE name is `chunk` too."""

    STATUS = "status"
    ATTEMPT = "attempt"
    CHUNK = "chunk"
    CHANNEL = "channel"
    DATA = "data"
    PROGRESS = "progress"
    CANCEL_REQUESTED = "cancel_requested"
    EXTERNAL = "external"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SNAPSHOT = "snapshot"

    @property
    def ends(self) -> bool:
        """Whether nothing follows an event of this kind."""
        return self in _ENDS


_ENDS = frozenset({EventKind.SUCCEEDED, EventKind.FAILED, EventKind.CANCELLED})


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no place in the log yet."""

    kind: EventKind
    data: str


class CancelBy(StrEnum):
    """Who wants a job to end: the user, a limit of its cost, or a client that left and had asked for this."""

    USER = "user"
    BUDGET = "budget"
    DISCONNECT = "disconnect"


def cancel_requested(by: CancelBy) -> Draft:
    """The event that says so."""
    return Draft(EventKind.CANCEL_REQUESTED, json_line({"by": by}).decode())
