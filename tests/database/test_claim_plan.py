"""What a claim reads: the index of what is queued and the rows that it takes, however much has finished before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import orjson
import pytest

from schema.database import Database
from schema.limits import set_limit
from schema.statements import statement
from tests.support.crowds import fill, tenants
from tests.support.jobs import connected

pytestmark = pytest.mark.anyio

WAITING = 100_000
LANES = 20
_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
_CLAIM = """
SELECT * FROM outlive.claim_jobs('w', 60, ARRAY['a', 'b'], ARRAY['x'], {wanted}, 0, '{{}}', '{{}}')
"""
# What statistics say of the reads of the jobs: whole table, and by which index.
_READS = """
SELECT 'whole' AS how, seq_scan AS reads FROM pg_stat_user_tables WHERE schemaname = 'outlive' AND relname = 'ai_jobs'
UNION ALL SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'outlive' AND relname = 'ai_jobs'
"""


async def _buffers(connection: asyncpg.Connection, sql: str) -> int:
    """Pages that it touched, in memory or not; the second time, when the session knows the catalog and its plans.
    What it does is taken back."""
    for _ in range(2):
        transaction = connection.transaction()
        await transaction.start()
        plan = orjson.loads(await connection.fetchval(_EXPLAIN + sql, timeout=60))[0]["Plan"]
        await transaction.rollback()
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def _claim_buffers(url: str, wanted: int) -> int:
    """As a worker that has just started."""
    async with connected(url) as connection:
        return await _buffers(connection, _CLAIM.format(wanted=wanted))


async def _reads(connection: asyncpg.Connection) -> dict[str, int]:
    await connection.execute("SELECT pg_stat_force_next_flush()")
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    return {row["how"]: row["reads"] for row in await connection.fetch(_READS)}


@asynccontextmanager
async def _reads_of(url: str) -> AsyncIterator[dict[str, int]]:
    """Which reads there were of the jobs within the block."""
    made: dict[str, int] = {}
    async with connected(url) as connection:
        before = await _reads(connection)
        yield made
        made |= {how: reads - before[how] for how, reads in (await _reads(connection)).items() if reads > before[how]}


async def _queue(database: Database) -> list[UUID]:
    """100,000 jobs in 20 lanes of 5 tenants."""
    ids = await tenants(database, LANES // 4)
    for tenant in ids:
        for kind in ("a", "b"):
            for provider in ("x", None):
                await fill(database, tenant, WAITING // LANES, kind=kind, provider=provider)
    return ids


@pytest.mark.timeout(300)
@pytest.mark.parametrize("limited", [False, True])
async def test_a_claim_costs_the_same_after_a_million_jobs(
    database: Database, database_url: str, *, limited: bool
) -> None:
    """Pages touched, of 1 and of 50 jobs, with no statistics and with those of a table that was smaller."""
    # How far autovacuum has come by then is luck, and decides whether an index alone can answer: at its worst here.
    await database.execute("ALTER TABLE outlive.ai_jobs SET (autovacuum_enabled = false)")
    ids = await _queue(database)
    if limited:
        await set_limit(database, "global", 1000)
        await set_limit(database, "provider:x", 500)
    figures: dict[int, tuple[int, int, int]] = {}
    for finished, more in ((1_000, 1_000), (100_000, 99_000), (1_000_000, 900_000)):
        await fill(database, ids[0], more, kind="a", provider="x", status="succeeded")
        async with _reads_of(database_url) as reads:
            one, fifty = await _claim_buffers(database_url, 1), await _claim_buffers(database_url, 50)
        assert set(reads) == {"ai_jobs_lanes", "ai_jobs_pkey"}, reads
        async with connected(database_url) as connection:
            waiting = await _buffers(
                connection, statement("count_waiting").replace("$1", f"'{ids[0]}'").replace("$2", "1000")
            )
        figures[finished] = (one, fifty, waiting)
        if finished == 100_000:
            await database.execute("ANALYZE outlive.ai_jobs")
    # What docs/performance.md says, with `-s`.
    print(f"limits {limited}: pages by finished jobs (1 job, 50 jobs, max_queued): {figures}")
    first, *others = figures.values()
    for later in others:
        for before, after in zip(first, later, strict=True):
            # A primary key of a million has a level more, and each job is looked up twice.
            assert after <= 1.3 * before + 10, figures
    assert first[0] < 700
    assert first[1] < 4_000
