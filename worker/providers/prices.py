"""What a call cost, from what the provider itself reported; nothing is ever counted by us.

Trust in this order: the provider's own figure, then prices of the providers file, then genai-prices
for the address that was called. A model that nobody has a price for costs None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from worker.providers.provider import Receipt, TokenPrice

_MILLION = Decimal(1_000_000)
# As finely as the ledger keeps it; a cost of 20,000 decimals, which JSON allows, could not be written at all.
_NANO = Decimal("0.000000001")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; those of a cache are part of `input_tokens`."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None = None

    @classmethod
    def of_chat(cls, usage: Mapping[str, Any]) -> Usage:
        """From the `usage` object of chat completions, with OpenRouter's `cost` and Perplexity's."""
        cost = usage.get("cost")
        return cls(
            count_of(usage.get("prompt_tokens")),
            count_of(usage.get("completion_tokens")),
            _cached(usage.get("prompt_tokens_details")),
            cost_usd=money_of(cost.get("total_cost") if isinstance(cost, dict) else cost),
        )

    @classmethod
    def of_response(cls, usage: Mapping[str, Any]) -> Usage:
        """From the `usage` object of Responses."""
        return cls(
            count_of(usage.get("input_tokens")),
            count_of(usage.get("output_tokens")),
            _cached(usage.get("input_tokens_details")),
        )

    @classmethod
    def of_message(cls, usage: Mapping[str, Any]) -> Usage:
        """From Anthropic's, whose `input_tokens` are only those that were not in its cache."""
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        fresh, read, written = (count_of(usage.get(name)) for name in names)
        total = None if fresh is None else fresh + (read or 0) + (written or 0)
        return cls(total, count_of(usage.get("output_tokens")), read, written)


def settle(receipt: Receipt, usage: Usage, model: str, base_url: str, own: TokenPrice | None) -> None:
    """Books tokens and cost on the receipt, as far as they are known, and with what prices."""
    receipt.input_tokens, receipt.output_tokens = usage.input_tokens, usage.output_tokens
    if usage.input_tokens is not None or usage.output_tokens is not None:
        receipt.usage_source = "provider"
    if usage.cost_usd is not None:
        receipt.price(usage.cost_usd, "provider")
    elif usage.input_tokens is not None and usage.output_tokens is not None:
        if own is None:
            _settle_listed(receipt, usage, model, base_url)
            return
        spent = usage.input_tokens * own.input_usd + usage.output_tokens * own.output_usd
        _reckon(receipt, spent / _MILLION, own, "providers file")


def _reckon(receipt: Receipt, cost: Decimal, price: TokenPrice, source: str) -> None:
    kept = _kept(cost)
    if kept is not None:
        receipt.price(kept, "local")
        receipt.price_used, receipt.price_source, receipt.priced_at = price, source, datetime.now(UTC).date()


def _settle_listed(receipt: Receipt, usage: Usage, model: str, base_url: str) -> None:
    # Imported here: it takes 0.3 s and 10 MB, and a worker of local models never needs it.
    import genai_prices

    counted: dict[str, int | None] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
    try:
        # By address, so that a local server with a famous model's name is not billed like the real one.
        price = genai_prices.calc_price(genai_prices.Usage(**counted), model, provider_api_url=base_url)
        used = _a_million(usage, model, base_url)
    except (LookupError, ValueError):
        return
    _reckon(receipt, price.total_price, used, f"genai-prices {genai_prices.__version__}")


def _a_million(usage: Usage, model: str, base_url: str) -> TokenPrice:
    """What a million fresh tokens cost in a call of this size, on which the price may depend."""
    import genai_prices

    inputs, outputs = usage.input_tokens or 1, usage.output_tokens or 1
    plain = genai_prices.Usage(input_tokens=inputs, output_tokens=outputs)
    price = genai_prices.calc_price(plain, model, provider_api_url=base_url)
    each = (price.input_price / inputs, price.output_price / outputs)
    input_usd, output_usd = ((one * _MILLION).quantize(_NANO) for one in each)
    return TokenPrice(input_usd, output_usd)


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


def count_of(value: object) -> int | None:
    """A number of tokens as a provider says it; None for what is none."""
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return int(value) if ok else None  # type: ignore[call-overload]


def _cached(details: object) -> int | None:
    return count_of(details.get("cached_tokens")) if isinstance(details, dict) else None


def money_of(value: object) -> Decimal | None:
    """US dollars as a provider says them; None for what is none."""
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
