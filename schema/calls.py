"""The ledger of requests on the wire: a row is committed before each is sent, and closed once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from schema.database import Database
from schema.executor import Executor
from schema.runs import Exposure, Lease
from schema.statements import statement


@dataclass(frozen=True, slots=True)
class CallStart:
    """A request that is about to be sent, the `call`-th of its attempt.

    `asked` is a hash of what is asked for, where the generation could be gone on with; `continues` is the call whose
    generation it goes on with, from its start unless it `keeps_text`. `seamless`: whether the log holds nothing but
    this generation since the last checkpoint.
    """

    call: int
    provider: str
    model: str | None
    asked: bytes | None = None
    seamless: bool = False
    continues: tuple[int, int] | None = None
    keeps_text: bool = False


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What is known of a call when it is over. A cost that is not known is None, which is not 0.

    `resume_id` None: nobody can go on with it. Prices are US dollars per million tokens, those it was reckoned with.
    """

    outcome: str
    error_class: str | None = None
    error_code: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    provider_request_id: str | None = None
    sent_at: datetime | None = None
    first_chunk_at: datetime | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage_source: str | None = None
    cost_usd: Decimal | None = None
    cost_source: str | None = None
    cost_is_lower_bound: bool = False
    resume_id: str | None = None
    price_input_usd: Decimal | None = None
    price_output_usd: Decimal | None = None
    price_source: str | None = None
    priced_at: date | None = None


async def open_call(executor: Executor, lease: Lease, start: CallStart) -> bool:
    """Record that a request is about to be sent; False where the lease is stale: then do not send it."""
    row = await executor.fetchrow(
        statement("open_call"),
        *(lease.job_id, lease.run_token, start.call, start.provider, start.model, start.asked, start.seamless),
        *(start.continues or (None, None)),
        start.keeps_text,
    )
    return row is not None


async def close_call(executor: Executor, lease: Lease, call: int, end: CallEnd) -> bool:
    """Record how the request ended; False where it was closed before."""
    row = await executor.fetchrow(
        statement("close_call"),
        *(lease.job_id, lease.attempt, call, end.outcome, end.error_class, end.error_code, end.http_status),
        *(end.finish_reason, end.provider_request_id, end.sent_at, end.first_chunk_at, end.input_tokens),
        *(end.output_tokens, end.usage_source, end.cost_usd, end.cost_source, end.cost_is_lower_bound, end.resume_id),
        *(end.price_input_usd, end.price_output_usd, end.price_source, end.priced_at),
    )
    return row is not None


async def attempt_spent(executor: Executor, job_id: UUID, attempt: int) -> bool:
    """Whether the attempt sent something that may have to be paid for, closed or not."""
    row = await executor.fetchrow(statement("attempt_spent"), job_id, attempt)
    return bool(row["spent"])


async def close_open_calls(executor: Executor, job_id: UUID, attempt: int) -> list[int]:
    """Close as unknown what a holder that is gone left open; returns the calls' numbers."""
    rows = await executor.fetch(statement("close_open_calls"), job_id, attempt)
    return sorted(row["call"] for row in rows)


async def exposed(executor: Executor, job_id: UUID, so_far: Exposure) -> Exposure:
    """The same bounds, with what all calls of the job have cost."""
    row = await executor.fetchrow(statement("exposure"), job_id)
    return replace(so_far, spent_usd=row["spent_usd"], unknown_calls=row["unknown_calls"])


@dataclass(frozen=True, slots=True)
class JobCost:
    """What a job's calls cost: the sum of what is known, None where nothing is; `complete` where all of it is."""

    known_usd: Decimal | None
    complete: bool


async def job_costs(database: Database, job_ids: Sequence[UUID]) -> dict[UUID, JobCost]:
    """For every one of the jobs; a job without a call has cost nothing that could be known."""
    rows = await database.fetch(statement("job_costs"), list(job_ids))
    return {row["job_id"]: JobCost(row["known_usd"], row["complete"]) for row in rows}


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the wire, as the ledger has it; the names are those of docs/protocol.md 3."""

    attempt: int
    call: int
    provider: str
    model: str | None
    provider_request_id: str | None
    started_at: datetime
    sent_at: datetime | None
    first_chunk_at: datetime | None
    finished_at: datetime | None
    outcome: str
    error_class: str | None
    http_status: int | None
    input_tokens: int | None
    output_tokens: int | None
    usage_source: str | None
    cost_usd: Decimal | None
    cost_source: str | None
    cost_is_lower_bound: bool
    price_input_usd: Decimal | None
    price_output_usd: Decimal | None
    price_source: str | None
    priced_at: date | None
    continues_attempt: int | None
    continues_call: int | None
    resolved_outcome: str | None
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a job, with its calls."""

    attempt: int
    reason: str | None
    worker: str
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    counted: bool
    calls: Sequence[Call]


async def list_attempts(database: Database, job_id: UUID) -> list[Attempt]:
    """All attempts of a job, oldest first, each with its calls in their order."""
    calls = [Call(**row) for row in await database.fetch(statement("list_calls"), job_id)]
    rows = await database.fetch(statement("list_attempts"), job_id)
    return [Attempt(**row, calls=[call for call in calls if call.attempt == row["attempt"]]) for row in rows]
