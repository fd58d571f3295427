"""What an HTTP status, a provider's error code or a transport error means for a call.

One table for every OpenAI-compatible provider, kept as data where it can be. A verdict of "unknown"
is for whatever may have been accepted and billed although no answer says so: 408, 502 and 504 come from
gateways that gave up waiting, not from the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from worker.providers.provider import ErrorClass

Verdict = tuple[ErrorClass, str]
"""A class and the machine word that goes with it."""

UNBILLED_STATUS = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 429, 503, 529})
"""The request was turned away before any token: cost 0. A 500 may have begun, so its cost is not known."""

_STATUS = {
    408: ErrorClass.UNKNOWN,
    409: ErrorClass.TRANSIENT,
    425: ErrorClass.TRANSIENT,
    429: ErrorClass.THROTTLED,
    500: ErrorClass.TRANSIENT,
    501: ErrorClass.PERMANENT,
    503: ErrorClass.TRANSIENT,
    529: ErrorClass.TRANSIENT,
}
_NEEDS_A_PERSON = frozenset(
    {
        "insufficient_quota",
        "insufficient_balance",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "payment_required",
        "account_deactivated",
    }
)
_REFUSED = frozenset({"content_filter", "content_policy_violation", "moderation_blocked", "refusal", "safety"})
_PERMANENT_WORDS = (
    "invalid",
    "not_found",
    "context_length",
    "context_size",
    "unsupported",
    "permission",
    "authentication",
    "image_",
    "too_large",
)

# Letters only: a key or an id that a provider echoes as a "code" never fits, so none reaches a log.
_WORD = re.compile(r"[a-z]+(?:_[a-z]+){0,7}")
_WORD_MAX = 48


def for_status(status: int, error: Mapping[str, Any]) -> Verdict:
    """The verdict on an answer that is not 2xx; `error` is the body's error object, or empty."""
    code = code_of(error) or f"http_{status}"
    special = _special(code, error)
    if special is not None:
        return special, code
    if status in _STATUS:
        return _STATUS[status], code
    # 502, 504 and the 52x of proxies: somebody between us and the provider answered.
    return (ErrorClass.UNKNOWN if status >= 500 else ErrorClass.PERMANENT), code


def for_error(error: Mapping[str, Any]) -> Verdict:
    """The verdict on an error object under HTTP 200, in the stream or instead of it.

    A code nobody knows is transient: `max_attempts` bounds what a wrong guess costs, while a wrong
    "permanent" would lose the job.
    """
    code = code_of(error) or "provider_error"
    number = error.get("code")
    if isinstance(number, int) and not isinstance(number, bool) and 400 <= number < 600:
        code = code_of(error) or f"http_{number}"
        if 400 <= number < 500 and number not in {408, 409, 425, 429}:
            return _special(code, error) or ErrorClass.PERMANENT, code
    special = _special(code, error)
    if special is not None:
        return special, code
    permanent = any(word in code for word in _PERMANENT_WORDS)
    return (ErrorClass.PERMANENT if permanent else ErrorClass.TRANSIENT), code


def code_of(error: Mapping[str, Any]) -> str | None:
    """The error's own machine word, its `code` before its `type`; None where it has none that is safe."""
    words = (_word(error.get(member)) for member in ("code", "type", "status"))
    return next((word for word in words if word), None)


def error_of(body: object) -> Mapping[str, Any]:
    """The error object of a JSON body; compatible servers differ, so a bare object counts too."""
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"code": error, **{name: body[name] for name in ("type", "status") if name in body}}
    return body if {"code", "type"} & body.keys() else {}


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until the provider wants to hear from us again: milliseconds, seconds or a date (RFC 9110)."""
    millis, wish = headers.get("retry-after-ms"), headers.get("retry-after")
    seconds = _number(millis)
    if seconds is not None:
        return seconds / 1000
    seconds = _number(wish)
    if seconds is not None or wish is None:
        return seconds
    try:
        at = parsedate_to_datetime(wish)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


def _special(code: str, error: Mapping[str, Any]) -> ErrorClass | None:
    """Codes that mean the same under every status."""
    words = {code, _word(error.get("type")) or code}
    if words & _NEEDS_A_PERSON or code.endswith("_spend_limit_reached"):
        return ErrorClass.PERMANENT
    return ErrorClass.REFUSED if words & _REFUSED else None


def _word(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > _WORD_MAX:
        return None
    word = value.lower().replace("-", "_")
    return word if _WORD.fullmatch(word) else None


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()):
        return None
    return float(text)
