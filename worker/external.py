"""The `external` event: how one provider call ended, beside the job's own fate."""

import orjson

from schema.events import Draft, EventKind
from worker.providers.provider import CallOutcome


def external_event(attempt: int, call: int, outcome: CallOutcome) -> Draft:
    """As docs/protocol.md 4 writes it."""
    data = {"attempt": attempt, "call": call, "outcome": outcome}
    return Draft(EventKind.EXTERNAL, orjson.dumps(data).decode())
