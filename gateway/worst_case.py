"""What a job may cost: docs/protocol.md 6. A bound that can be relied on, or none; never a guess."""

import math
from decimal import ROUND_UP, Decimal
from typing import Any

from gateway.findings import finding, invalid
from schema.creation import JobMoney
from schema.kinds import JobKind

# A byte of text is at least no token, so bytes bound the tokens; what a handler adds of its own comes on top.
ADDED_TOKENS = 2_000
# As much as a column holds; a bound beyond it bounds nothing.
MOST_USD = Decimal(999_999_999)
_MILLION = Decimal(1_000_000)
_NANO = Decimal("1e-9")
_NOTHING = Decimal(0)


def job_money(
    kind: JobKind,
    provider: str | None,
    model: str | None,
    input_value: Any,
    input_bytes: int,
    wish_usd: Decimal | None,
) -> JobMoney:
    """The bounds of a job of this kind; `wish_usd` is the request's max_cost_usd.

    Reserved is the wish, else the kind's default, else its fixed price, else all its calls at their worst.
    Raises Problem invalid_input for a wish under the fixed price: nobody is charged more than was reserved.
    """
    if wish_usd is not None and kind.price_usd is not None and wish_usd < kind.price_usd:
        raise invalid([finding(["max_cost_usd"], f"is less than this kind costs, {kind.price_usd.normalize():f}")])
    call_usd = _call_usd(kind, provider, model, input_value, input_bytes)
    most_usd = kind.max_cost_usd if wish_usd is None else wish_usd
    bounds = (most_usd, kind.price_usd, _all_calls_usd(kind, call_usd))
    reserved_usd = next((bound for bound in bounds if bound is not None), None)
    return JobMoney(most_usd, kind.price_usd, call_usd, reserved_usd)


def _all_calls_usd(kind: JobKind, call_usd: Decimal | None) -> Decimal | None:
    if call_usd is None or call_usd == 0:
        return call_usd
    return None if kind.calls is None else _bound(kind.calls * call_usd)


def _call_usd(
    kind: JobKind, provider: str | None, model: str | None, input_value: Any, input_bytes: int
) -> Decimal | None:
    """One call at worst: all of the input and as much output as may come, in US dollars."""
    if not kind.calls_provider or provider is None:
        return _NOTHING
    price = kind.prices.get(provider, {}).get(model or "")
    if price is None:
        return None
    input_usd, output_usd, context = Decimal(price["input"]), Decimal(price["output"]), price["context"]
    if input_usd == output_usd == 0:
        return _NOTHING
    output_tokens = _output_tokens(input_value, context)
    if output_tokens is None:
        return None
    input_tokens = _least(input_bytes + ADDED_TOKENS, context)
    return _bound((input_tokens * input_usd + output_tokens * output_usd) / _MILLION)


def _bound(dollars: Decimal) -> Decimal | None:
    return None if dollars > MOST_USD else dollars.quantize(_NANO, rounding=ROUND_UP)


def _output_tokens(input_value: Any, context: int | None) -> int | None:
    """What the input asks for at most, and never more than the model can hold at all."""
    wished = input_value.get("max_output_tokens") if isinstance(input_value, dict) else None
    # A team's own schema may let anything stand there, and its handler may take 0 for no limit.
    if isinstance(wished, bool) or not isinstance(wished, int | float) or wished < 1:
        return context
    return _least(math.ceil(wished), context)


def _least(tokens: int, context: int | None) -> int:
    return tokens if context is None else min(tokens, context)
