"""What a call cost, from what the provider itself reported; nothing is ever counted by us.

Trust in this order: the provider's own figure, then prices of the providers file, then genai-prices
for the address that was called. A model that nobody has a price for costs None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from worker.providers.provider import Receipt, TokenPrice

_MILLION = Decimal(1_000_000)
# As finely as the ledger keeps it; a cost of 20,000 decimals, which JSON allows, could not be written at all.
_NANO = Decimal("0.000000001")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; `cached_tokens` are part of `input_tokens`."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: Decimal | None

    @classmethod
    def of_response(cls, usage: Mapping[str, Any]) -> Usage:
        """From the `usage` object of Responses."""
        details = usage.get("input_tokens_details")
        return cls(
            _count(usage.get("input_tokens")),
            _count(usage.get("output_tokens")),
            _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
            None,
        )

    @classmethod
    def read(cls, usage: Mapping[str, Any]) -> Usage:
        """From the `usage` object of chat completions, with OpenRouter's `cost` and Perplexity's."""
        details = usage.get("prompt_tokens_details")
        cost = usage.get("cost")
        return cls(
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
            _money(cost.get("total_cost") if isinstance(cost, dict) else cost),
        )


def settle(receipt: Receipt, usage: Usage, model: str, base_url: str, own: TokenPrice | None) -> None:
    """Books tokens and cost on the receipt, as far as they are known."""
    receipt.input_tokens, receipt.output_tokens = usage.input_tokens, usage.output_tokens
    if usage.input_tokens is not None or usage.output_tokens is not None:
        receipt.usage_source = "provider"
    if usage.cost_usd is not None:
        receipt.price(usage.cost_usd, "provider")
        return
    local = _local_cost(usage, model, base_url, own)
    if local is not None:
        receipt.price(local, "local")


def _local_cost(usage: Usage, model: str, base_url: str, own: TokenPrice | None) -> Decimal | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if own is not None:
        spent = usage.input_tokens * own.input_usd + usage.output_tokens * own.output_usd
        return _kept(spent / _MILLION)
    return _listed_cost(usage, model, base_url)


def _listed_cost(usage: Usage, model: str, base_url: str) -> Decimal | None:
    # Imported here: it takes 0.3 s and 10 MB, and a worker of local models never needs it.
    import genai_prices

    counted: dict[str, int | Decimal | None] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_tokens,
    }
    try:
        # By address, so that a local server with a famous model's name is not billed like the real one.
        price = genai_prices.calc_price(genai_prices.Usage(**counted), model, provider_api_url=base_url)
    except (LookupError, ValueError):
        return None
    return _kept(price.total_price)


@cache
def listed_price(model: str, base_url: str) -> TokenPrice | None:
    """What genai-prices has for a model at an address; where a price rises with the request, that of the largest."""
    import genai_prices

    def of(usage: genai_prices.Usage) -> genai_prices.types.PriceCalculation:
        return genai_prices.calc_price(usage, model, provider_api_url=base_url)

    try:
        inputs = of(genai_prices.Usage(input_tokens=1_000_000))
        outputs = of(genai_prices.Usage(output_tokens=1_000_000))
    except (LookupError, ValueError):
        return None
    return TokenPrice(inputs.total_price, outputs.total_price, inputs.model.context_window)


def _count(value: object) -> int | None:
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return int(value) if ok else None  # type: ignore[call-overload]


def _money(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        money = Decimal(str(value))
    except InvalidOperation:
        return None
    return _kept(money)


def _kept(cost: Decimal) -> Decimal | None:
    """As the ledger can hold it; None for what no call costs, such as a lie about tokens makes."""
    return cost.quantize(_NANO) if cost.is_finite() and 0 <= cost < _MILLION else None
