"""What each event's data has to hold, by docs/protocol.md, "The event log and its streams"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Data = dict[str, Any]
Rule = Callable[[Data], bool]

STATUSES = {"queued", "scheduled"}
ATTEMPT_REASONS = {
    "started",
    "lease_expired",
    "transient_error",
    "throttled",
    "released",
    "unknown_retry",
    "reattached",
}
CANCELLED_BY = {"user", "budget", "disconnect"}
OUTCOMES = {"succeeded", "failed", "unknown", "cancelled", "cancel_unconfirmed"}
ERROR_CLASSES = {
    "permanent",
    "refused",
    "transient",
    "throttled",
    "unknown",
    "exhausted",
    "budget",
    "expired",
}
RECONNECT_REASONS = {"draining", "max_age", "token_expired", "lagging", "overloaded", "database"}

TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
# These are not part of the log, so they carry no id.
OUTSIDE_THE_LOG = frozenset({"heartbeat", "reconnect"})


def _counts(data: Data, *names: str) -> bool:
    return all(type(data.get(name)) is int and data[name] >= 0 for name in names)


def _status(data: Data) -> bool:
    if data.get("status") == "scheduled":
        return isinstance(data.get("run_at"), str) and "reason" in data
    return data.get("status") in STATUSES


def _attempt(data: Data) -> bool:
    return _counts(data, "attempt", "resumes_after") and data.get("reason") in ATTEMPT_REASONS


def _chunk(data: Data) -> bool:
    return isinstance(data.get("text"), str) and isinstance(data.get("channel", ""), str)


def _external(data: Data) -> bool:
    return _counts(data, "attempt", "call") and data.get("outcome") in OUTCOMES


def _succeeded(data: Data) -> bool:
    has_one = ("result" in data) != ("result_url" in data)
    return data.get("status") == "succeeded" and _counts(data, "attempt") and has_one


def _failed(data: Data) -> bool:
    error = data.get("error")
    return (
        data.get("status") == "failed"
        and _counts(data, "attempt")
        and isinstance(error, dict)
        and error.get("class") in ERROR_CLASSES
        and all(isinstance(error.get(name), str) for name in ("code", "message"))
    )


def _reconnect(data: Data) -> bool:
    return data.get("reason") in RECONNECT_REASONS and _counts(data, "retry_ms")


RULES: dict[str, Rule] = {
    "status": _status,
    "attempt": _attempt,
    "chunk": _chunk,
    "data": lambda data: isinstance(data.get("name"), str) and "value" in data,
    "progress": lambda data: _counts(data, "done", "total"),
    "cancel_requested": lambda data: data.get("by") in CANCELLED_BY,
    "external": _external,
    "succeeded": _succeeded,
    "failed": _failed,
    "cancelled": lambda data: data.get("status") == "cancelled" and _counts(data, "attempt"),
    "snapshot": lambda data: isinstance(data.get("text"), str) and _counts(data, "attempt"),
    "heartbeat": lambda data: data == {},
    "reconnect": _reconnect,
}
