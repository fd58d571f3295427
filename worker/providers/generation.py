"""What OpenRouter tells of a generation afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.providers.prices import count_of, money_of
from worker.providers.provider import CallOutcome, ErrorClass, Receipt


def generation_receipt(told: Mapping[str, Any]) -> Receipt | None:
    """From the `data` of `GET /generation`; None where it has no cost yet."""
    cost = money_of(told.get("total_cost"))
    if cost is None:
        return None
    receipt = Receipt(usage_source="provider")
    receipt.input_tokens = count_of(told.get("native_tokens_prompt", told.get("tokens_prompt")))
    receipt.output_tokens = count_of(told.get("native_tokens_completion", told.get("tokens_completion")))
    receipt.price(cost, "provider")
    if told.get("cancelled") is True:
        receipt.outcome = CallOutcome.CANCELLED
    elif told.get("finish_reason") == "error":
        receipt.fail(ErrorClass.TRANSIENT, "provider_error")
    else:
        receipt.outcome = CallOutcome.SUCCEEDED
    return receipt
