"""The worst case is a bound or nothing, and a kind takes no money that no job could be created with."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.problems import Problem
from gateway.worst_case import ADDED_TOKENS, MOST_USD, job_money
from schema.creation import JobMoney
from schema.kinds import JobKind
from worker.handlers.kind import Json, Repeat, RunContext, kind


def a_kind(price: dict[str, Any] | None = None, **changes: Any) -> JobKind:
    prices = {} if price is None else {"p": {"m": price}}
    return JobKind("k", 1, {}, "safe", 600, True, "p", "m", {"p": ["m"]}, prices=prices, **changes)


def worst(kind: JobKind, wish_usd: str | None = None, **value: object) -> JobMoney:
    return job_money(kind, "p", "m", value, 100, None if wish_usd is None else Decimal(wish_usd))


DEAR = {"input": "1000000", "output": "1000000", "context": None}
CHEAP = {"input": "0.15", "output": "0.6", "context": None}


def test_all_input_and_all_output_at_the_model_s_price() -> None:
    money = worst(a_kind(CHEAP, calls=3), max_output_tokens=1000)
    one_call = (Decimal("0.15") * (100 + ADDED_TOKENS) + Decimal("0.6") * 1000) / 1_000_000
    assert money == JobMoney(None, None, one_call, 3 * one_call)


def test_it_is_rounded_up_to_what_the_books_hold() -> None:
    price = {"input": "0.0000001", "output": "0.0000001", "context": None}
    assert worst(a_kind(price, calls=1), max_output_tokens=1).reserved_usd == Decimal("0.000000001")


@pytest.mark.parametrize(
    ("price", "calls", "value"),
    [
        (None, 1, {"max_output_tokens": 10}),
        (CHEAP, None, {"max_output_tokens": 10}),
        (CHEAP, 1, {}),
        (DEAR, 1, {"max_output_tokens": 2**53}),
        (DEAR, 1, {"max_output_tokens": 1e300}),
        (DEAR, 32_767, {"max_output_tokens": 100_000}),
    ],
    ids=["no price", "any number of calls", "any output", "beyond the books", "absurd", "beyond the books in all"],
)
def test_what_bounds_nothing_is_no_bound(price: dict[str, Any] | None, calls: int | None, value: Any) -> None:
    assert worst(a_kind(price, calls=calls), **value).reserved_usd is None


def test_the_dearest_bound_is_one_that_the_books_hold() -> None:
    money = worst(a_kind(DEAR, calls=1), max_output_tokens=int(MOST_USD) - 100 - ADDED_TOKENS)
    assert money.reserved_usd == MOST_USD


def test_what_costs_nothing_reserves_nothing_whatever_it_calls() -> None:
    free = {"input": "0", "output": "0.0", "context": None}
    assert worst(a_kind(free)) == JobMoney(None, None, Decimal(0), Decimal(0))
    no_calls = JobKind("k", 1, {}, "safe", 600, False, None, None, {})
    assert job_money(no_calls, None, None, {}, 100, None).reserved_usd == 0


def test_the_request_goes_before_the_kind_and_the_kind_before_its_price() -> None:
    sold = a_kind(CHEAP, calls=1, price_usd=Decimal("0.25"))
    assert worst(sold).reserved_usd == Decimal("0.25")
    assert worst(sold, "0.3") == JobMoney(Decimal("0.3"), Decimal("0.25"), None, Decimal("0.3"))
    bounded = a_kind(CHEAP, calls=1, price_usd=Decimal("0.25"), max_cost_usd=Decimal("0.4"))
    assert (worst(bounded).reserved_usd, worst(bounded, "0.25").reserved_usd) == (Decimal("0.4"), Decimal("0.25"))
    with pytest.raises(Problem):
        worst(sold, "0.249999999")


async def _handler(run: RunContext, input: dict[str, Json]) -> Json:
    return None


@pytest.mark.parametrize(
    ("money", "names"),
    [
        ({"price_usd": "-0.1"}, "price_usd"),
        ({"price_usd": "NaN"}, "price_usd"),
        ({"price_usd": "10000.1"}, "price_usd"),
        ({"price_usd": "0.0000000001"}, "price_usd"),
        ({"price_usd": 0.1}, "price_usd"),
        ({"max_cost_usd": "0"}, "max_cost_usd"),
        ({"max_cost_usd": "Infinity"}, "max_cost_usd"),
        ({"price_usd": "0.25", "max_cost_usd": "0.1"}, "price_usd"),
        ({"calls": 0}, "calls"),
        ({"calls": 40_000}, "calls"),
    ],
)
def test_money_that_a_kind_cannot_have(money: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=f"^k: {names} "):
        kind("k", input_schema={}, repeat=Repeat.SAFE, **money)(_handler)


def test_money_that_a_kind_can_have() -> None:
    made = kind("k", input_schema={}, repeat=Repeat.SAFE, price_usd="0", max_cost_usd="0.000000001", calls=1)(
        _handler
    )
    assert (made.price_usd, made.max_cost_usd, made.calls) == (Decimal(0), Decimal("0.000000001"), 1)
