"""The row of a call as its receipt says it ended."""

from collections.abc import Awaitable, Callable

from schema.calls import CallEnd, close_call
from schema.executor import Executor
from schema.runs import Lease
from schema.text import clean_text
from worker.providers.provider import CallOutcome, Receipt

# What a provider says in words of its own is kept only so far; none known comes near it.
REASON_CHARACTERS = 100
ID_CHARACTERS = 200


def closing(lease: Lease, call: int, receipt: Receipt, outcome: CallOutcome) -> Callable[[Executor], Awaitable[None]]:
    """What is to be committed with the `external` event."""
    end = end_of(receipt, outcome)

    async def close(executor: Executor) -> None:
        await close_call(executor, lease, call, end)

    return close


def end_of(receipt: Receipt, outcome: CallOutcome) -> CallEnd:
    """What the ledger keeps of a receipt."""
    price = receipt.price_used
    return CallEnd(
        outcome=outcome,
        error_class=receipt.error_class,
        error_code=receipt.code,
        http_status=receipt.http_status,
        finish_reason=_kept(receipt.finish_reason, receipt.secret, REASON_CHARACTERS),
        provider_request_id=_kept(receipt.provider_request_id, receipt.secret, ID_CHARACTERS),
        sent_at=receipt.sent_at,
        first_chunk_at=receipt.first_chunk_at,
        input_tokens=receipt.input_tokens,
        output_tokens=receipt.output_tokens,
        usage_source=receipt.usage_source,
        cost_usd=receipt.cost_usd,
        cost_source=receipt.cost_source,
        cost_is_lower_bound=receipt.cost_is_lower_bound,
        resume_id=receipt.resume_id,
        price_input_usd=None if price is None else price.input_usd,
        price_output_usd=None if price is None else price.output_usd,
        price_source=receipt.price_source,
        priced_at=receipt.priced_at,
    )


def _kept(said: str | None, secret: str | None, most: int) -> str | None:
    """A word of the provider's, unless it says our key back."""
    if not said or (secret is not None and secret.casefold() in said.casefold()):
        return None
    return clean_text(said)[:most]
