"""The attempts of a job as a back end sees them: docs/protocol.md 3."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from gateway.job_view import rfc3339, usd
from schema.calls import Attempt, Call


def view_attempts(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Each as one JSON object, its calls in it."""
    return [_shown(each) | {"calls": [_call(call) for call in each.calls]} for each in attempts]


def _call(call: Call) -> dict[str, Any]:
    shown = _shown(call)
    del shown["attempt"]
    return shown


def _shown(row: Attempt | Call) -> dict[str, Any]:
    """The row's own names, with times and money as callers get them."""
    return {field.name: _value(getattr(row, field.name)) for field in fields(row)}


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return rfc3339(value)
        case date():
            return value.isoformat()
        case Decimal():
            return usd(value)
        case _:
            return value
