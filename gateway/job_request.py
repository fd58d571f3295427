"""The body of POST /api/ai/jobs: its form, and the job that it asks for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson

from gateway.findings import check, finding, invalid
from gateway.kind_book import compiled, validator_of
from gateway.problems import Problem
from gateway.worst_case import job_money
from schema.creation import JobMoney
from schema.kinds import JobKind

METADATA_BYTES = 16 * 1024
MAX_COST_USD = 10_000
RUN_AT_AHEAD = timedelta(days=30)
_SHORT = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}

_FORM = compiled(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "kind": {"type": "string", "minLength": 1, "maxLength": 255},
            "input": True,
            "user_id": _SHORT,
            "metadata": {"type": "object"},
            "priority": {"type": "integer", "minimum": -100, "maximum": 100},
            "run_at": {"type": ["string", "null"]},
            "start_before": {"type": ["string", "null"]},
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": 20},
            "on_unknown": {"enum": ["auto", "retry", "fail"]},
            "max_cost_usd": {"type": ["number", "string", "null"]},
            "provider": _SHORT,
            "model": _SHORT,
            "on_disconnect": {"enum": ["continue", "cancel"]},
        },
        "required": ["kind", "input"],
        "additionalProperties": False,
    }
)

_AMOUNT = re.compile(r"\d{1,5}(\.\d{1,9}0*)?", re.ASCII)
# RFC 3339, 5.6: date, T or t or a space, time, and always a zone.
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
# The driver takes the ends of Python's calendar for infinity, which no answer can show.
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A checked body. `input_json` and `metadata_json` are JSON texts."""

    kind: str
    user_id: str | None
    provider: str | None
    model: str | None
    priority: int
    max_attempts: int
    on_unknown: str
    run_at: datetime | None
    start_before: datetime | None
    input_json: str
    metadata_json: str
    ends_with_client: bool
    money: JobMoney


def check_form(body: Any) -> None:
    """Raise Problem invalid_input where the body is no request for a job, whatever its kind."""
    check(_FORM, body)
    errors = list(_refusals(body))
    if errors:
        raise invalid(errors)


def read_request(body: dict[str, Any], kind: JobKind) -> JobRequest:
    """The job that a body of the right form asks for. Raises Problem invalid_input, unknown_provider."""
    check(validator_of(kind), body["input"], ["input"])
    provider, model = _choice(kind, body.get("provider"), body.get("model"))
    input_json = orjson.dumps(body["input"])
    wish_usd = _dollars(body.get("max_cost_usd"))
    return JobRequest(
        kind=body["kind"],
        user_id=body.get("user_id"),
        provider=provider,
        model=model,
        priority=body.get("priority", 0),
        max_attempts=body.get("max_attempts", 3),
        on_unknown=body.get("on_unknown", "auto"),
        run_at=_moment(body.get("run_at")),
        start_before=_moment(body.get("start_before")),
        input_json=input_json.decode(),
        metadata_json=orjson.dumps(body.get("metadata", {})).decode(),
        ends_with_client=body.get("on_disconnect") == "cancel",
        money=job_money(kind, provider, model, body["input"], len(input_json), wish_usd),
    )


def _refusals(body: dict[str, Any]) -> Iterator[dict[str, str]]:
    if len(orjson.dumps(body.get("metadata", {}))) > METADATA_BYTES:
        yield finding(["metadata"], f"may have at most {METADATA_BYTES} bytes as JSON")
    for name in ("run_at", "start_before"):
        if body.get(name) is not None and _moment(body[name]) is None:
            yield finding([name], "must be a time of RFC 3339 with a zone, like 2030-01-31T09:00:00Z")
    run_at = _moment(body.get("run_at"))
    if run_at is not None and run_at - datetime.now(UTC) > RUN_AT_AHEAD:
        yield finding(["run_at"], f"may be at most {RUN_AT_AHEAD.days} days ahead")
    if body.get("max_cost_usd") is not None and _dollars(body["max_cost_usd"]) is None:
        yield finding(["max_cost_usd"], f"must be more than 0 and at most {MAX_COST_USD}, with at most 9 decimals")


def _dollars(value: float | str | None) -> Decimal | None:
    """An amount as JSON has it, or as our answers write it; with 5 digits and 9 decimals a float is exact."""
    text = value if isinstance(value, str) else f"{Decimal(repr(value or 0)):f}"
    if not _AMOUNT.fullmatch(text):
        return None
    amount = Decimal(text)
    return amount if 0 < amount <= MAX_COST_USD else None


def _moment(text: str | None) -> datetime | None:
    match = _MOMENT.fullmatch(text or "")
    if match is None:
        return None
    date, time, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{time}{(fraction or '.0')[:7]:0<7}{zone.upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if _EARLIEST <= moment < _LATEST else None


def _choice(kind: JobKind, provider: str | None, model: str | None) -> tuple[str | None, str | None]:
    """Provider and model, fixed now, so that a later default changes nothing for a job that waits."""
    if provider is None and model is None:
        if kind.default_provider is None and kind.calls_provider:
            raise Problem(
                "unknown_provider", "No worker has a provider for this kind; configure one, then try again."
            )
        return kind.default_provider, kind.default_model
    for name in [provider] if provider is not None else _in_order(kind):
        models = kind.choices.get(name)
        if models is None:
            continue
        if model is not None and (model in models or (not models and provider is not None)):
            return name, model
        if model is None:
            return name, kind.default_model if name == kind.default_provider else next(iter(models), None)
    raise Problem(
        "unknown_provider", "No worker offers this provider and model for this kind; see GET /api/ai/kinds."
    )


def _in_order(kind: JobKind) -> list[str]:
    """The default first."""
    return sorted(kind.choices, key=lambda name: name != kind.default_provider)
