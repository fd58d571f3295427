"""Many jobs at once, by one statement; and who takes them, in the order of the starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from schema.database import Database
from schema.runs import Ask, Claimed, ClaimedRun, claim
from tests.support.jobs import KIND
from worker.turns import Turns

# The id is a UUIDv7 of now, so that the events find their partition; ids and keys rise, which is what makes a million
# of them quick. $1 tenant_id, $2 how many, $3 kind, $4 provider, $5 priority, $6 status, $7 seconds by which each is
# older than the next.
_FILL = """
WITH made AS (
    INSERT INTO outlive.ai_jobs (id, tenant_id, idempotency_key, request_hash, kind, provider, priority, status,
        max_attempts, attempt, attempts, last_seq, run_at, started_at, finished_at, ended_xid)
    SELECT made.id::uuid, $1, made.id, decode(repeat('00', 32), 'hex'), $3, $4, $5::integer, s.status,
        3, s.attempt, s.attempt, 1, now() - make_interval(secs => ($2 - n) * $7::double precision),
        CASE WHEN s.attempt = 1 THEN now() END, CASE WHEN s.attempt = 1 THEN now() END,
        CASE WHEN s.attempt = 1 THEN pg_current_xact_id() END
    FROM (SELECT $6::outlive.job_status AS status, outlive.has_ended($6::outlive.job_status)::integer AS attempt,
            lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '70008'
                || substr(md5(random()::text), 1, 7) AS head OFFSET 0) AS s,
        generate_series(1, $2::bigint) AS n, LATERAL (SELECT s.head || lpad(to_hex(n), 8, '0') AS id) AS made
    RETURNING id, status
)
INSERT INTO outlive.job_contents (job_id, input) SELECT id, '{}' FROM made WHERE NOT outlive.has_ended(status)
"""


async def fill(
    database: Database,
    tenant_id: UUID,
    count: int,
    *,
    kind: str = KIND,
    provider: str | None = None,
    priority: int = 0,
    status: str = "queued",
    apart_s: float = 1e-6,
) -> None:
    """`count` jobs of one lane, the oldest first; ended ones have no content."""
    async with database.transaction() as connection:
        # Foreign keys are checked row by row, and a million rows take longer than any statement of ours may.
        await connection.execute("SET LOCAL session_replication_role = replica; SET LOCAL statement_timeout = 0")
        await connection.execute(_FILL, tenant_id, count, kind, provider, priority, status, apart_s, timeout=300)


async def tenants(database: Database, count: int, weights: Sequence[int] = (1,)) -> list[UUID]:
    """That many, with these weights in turn."""
    rows = await database.fetch(
        "INSERT INTO outlive.tenants (id, name, weight)"
        " SELECT gen_random_uuid(), 't' || replace(gen_random_uuid()::text, '-', ''), ($2::smallint[])[n % $3 + 1]"
        " FROM generate_series(0, $1 - 1) AS n RETURNING id",
        *(count, list(weights), len(weights)),
    )
    return [row["id"] for row in rows]


@dataclass
class Claimer:
    """One worker's part in the claim: what it asks with, what it remembers, what it has started."""

    database: Database
    kinds: Sequence[str] = (KIND,)
    providers: Sequence[str] = ()
    turns: Turns = field(default_factory=Turns)
    runs: list[ClaimedRun] = field(default_factory=list)

    async def claim(self, wanted: int = 1) -> Claimed:
        ask = Ask("w", self.kinds, self.providers, wanted, 60, self.turns.virtual_now, self.turns.tags)
        claimed = await claim(self.database, ask)
        self.turns.took(claimed.turns)
        self.runs.extend(claimed.runs)
        return claimed

    async def starts(self, count: int, wanted: int = 1) -> AsyncIterator[ClaimedRun]:
        """The next starts, one after the other; fewer where there are no more."""
        while count > 0 and (runs := (await self.claim(min(wanted, count))).runs):
            count -= len(runs)
            for run in runs:
                yield run

    async def tenants_of(self, count: int, wanted: int = 1) -> list[UUID]:
        return [run.tenant_id async for run in self.starts(count, wanted)]

    @property
    def shares(self) -> Counter[UUID]:
        """How many of each tenant's jobs it has started."""
        return Counter(run.tenant_id for run in self.runs)
