"""Calls of which nobody knows what became; what their provider tells later stands beside the first verdict."""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from schema.calls import CallEnd
from schema.database import Database
from schema.statements import statement

# Providers keep what became of a generation for minutes (OpenAI, in background mode) to weeks (OpenRouter); who has
# not told within a day, asked after ever longer pauses, does not.
ASK_SECONDS = 24 * 3600
ASK_MOST = 20


@dataclass(frozen=True, slots=True)
class Unresolved:
    """One call to ask after, with what its provider knows it by."""

    job_id: UUID
    attempt: int
    call: int
    provider: str
    model: str | None
    resume_id: str | None
    provider_request_id: str | None


async def take_unresolved(database: Database, providers: Collection[str], limit: int) -> list[Unresolved]:
    """Calls of these providers whose turn it is; nobody else gets them for a while."""
    rows = await database.fetch(statement("take_unresolved"), list(providers), ASK_SECONDS, limit, ASK_MOST)
    return [Unresolved(**row) for row in rows]


async def resolve(database: Database, call: Unresolved, end: CallEnd) -> Decimal | None:
    """Note what became of it and let the job pay so; by how many US dollars more, None where it was known."""
    async with database.transaction() as connection:
        row = await connection.fetchrow(
            statement("resolve_call"),
            *(call.job_id, call.attempt, call.call, end.outcome, end.input_tokens, end.output_tokens),
            *(end.usage_source, end.cost_usd, end.cost_source, end.cost_is_lower_bound),
            *(end.price_input_usd, end.price_output_usd, end.price_source, end.priced_at),
        )
        if row is None:
            return None
        more = await connection.fetchrow(statement("adjust_bill"), call.job_id)
        return Decimal(more["more_usd"])
