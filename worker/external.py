"""The `external` event: how one provider call ended, beside the job's own fate."""

from schema.events import Draft, EventKind
from schema.json_line import json_line
from worker.providers.provider import CallOutcome


def external_event(attempt: int, call: int, outcome: CallOutcome) -> Draft:
    """As docs/protocol.md 4 writes it."""
    data = {"attempt": attempt, "call": call, "outcome": outcome}
    return Draft(EventKind.EXTERNAL, json_line(data).decode())
