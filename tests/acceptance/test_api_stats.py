"""`GET /api/ai/stats`: who may ask, for how long, and what he sees. tests/database has the figures themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest

from tests.acceptance.conftest import Desk, problem
from tests.faults.house import open_house, write_providers
from tests.support.jobs import locked
from tests.support.servers import start_worker
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}
FIGURES = {
    *("jobs_created", "jobs_accepted", "share_without_retry", "job_retry_rate", "lease_expired_count"),
    *("provider_attempts", "provider_unknown_outcomes", "cost_per_accepted_job", "queue_wait_s", "run_time_s"),
}


async def stats(desk: Desk, credential: str | None = None, query: str = "") -> dict[str, Any]:
    answer = await desk.get(f"/api/ai/stats{query}", credential)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    return body


async def test_a_key_sees_its_tenant_and_an_operator_everybody(desk: Desk) -> None:
    before = [(await stats(desk, key))["jobs_created"] for key in (desk.key, desk.other_key, desk.operator_key)]
    for credential in (desk.key, desk.key, desk.other_key):
        assert (await desk.post(WORK, uuid4().hex, credential)).status_code == 202
    mine, others, all_of_it = [await stats(desk, key) for key in (desk.key, desk.other_key, desk.operator_key)]
    after = [each["jobs_created"] for each in (mine, others, all_of_it)]
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [2, 1, 3]
    for own in (mine, others):
        assert set(own) == {"window", "since"} | FIGURES
    assert set(all_of_it) == {"window", "since", "by_tenant"} | FIGURES
    assert [each["tenant"] for each in all_of_it["by_tenant"]] == ["acme", "globex"]
    assert [{name: each[name] for name in FIGURES} for each in all_of_it["by_tenant"]] == [
        {name: own[name] for name in FIGURES} for own in (mine, others)
    ]


async def test_what_is_not_there_is_null(desk: Desk) -> None:
    found = await stats(desk)
    assert (found["share_without_retry"], found["job_retry_rate"]) == (None, None)
    assert found["queue_wait_s"] == found["run_time_s"] == {"p50": None, "p95": None, "p99": None}
    assert found["cost_per_accepted_job"] == []


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("1m", timedelta(minutes=1)),
        ("90m", timedelta(minutes=90)),
        ("24h", timedelta(days=1)),
        ("400d", timedelta(days=400)),
        ("576000m", timedelta(days=400)),
    ],
)
async def test_windows(desk: Desk, window: str, length: timedelta) -> None:
    found = await stats(desk, query=f"?window={window}")
    assert found["window"] == window
    off = datetime.now(UTC) - length - datetime.fromisoformat(found["since"])
    assert abs(off) < timedelta(seconds=30)


async def test_a_day_unless_another_is_asked_for(desk: Desk) -> None:
    assert (await stats(desk))["window"] == "24h"


@pytest.mark.parametrize(
    "query",
    [
        *("window=", "window=0h", "window=59s", "window=24", "window=h", "window=-1h", "window=1.5h", "window=24H"),
        *("window=401d", "window=9601h", "window=9999999m", "window=999999d", "window=%2024h", "window=24h%0A"),
        *("window=%D9%A1h", "window=1h&window=1h", "tenant=acme", "window=1w", "window=%00"),
    ],
)
async def test_another_window_is_refused(desk: Desk, query: str) -> None:
    assert problem(await desk.get(f"/api/ai/stats?{query}")) == (400, "invalid_query")


async def test_a_token_is_not_enough(desk: Desk) -> None:
    token = await desk.token(user="ann", scope=["read", "cancel", "create"])
    assert problem(await desk.get("/api/ai/stats", token)) == (403, "forbidden")
    assert problem(await desk.client.get("/api/ai/stats")) == (401, "unauthorized")
    assert problem(await desk.client.get(f"/api/ai/stats?token={token}")) == (401, "unauthorized")


async def test_what_else_it_does_not_take(desk: Desk) -> None:
    answer = await desk.client.post("/api/ai/stats", headers=desk.auth())
    assert problem(answer) == (405, "method_not_allowed")
    assert problem(await desk.get("/api/ai/stats", Accept="text/html")) == (406, "not_acceptable")


async def test_one_count_at_a_time_and_whoever_comes_too_late_is_told_so(desk: Desk) -> None:
    """Somebody holds a table; the others wait in the process, not on connections of the pool."""
    answers: list[httpx.Response] = []

    async def ask() -> None:
        answers.append(await desk.get("/api/ai/stats"))

    async def counting() -> int:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%AS retries%'"
        return int(await desk.database.fetchval(sql))

    held = locked(desk.database.settings.url, "LOCK TABLE outlive.job_attempts")
    async with anyio.create_task_group() as tasks, held:
        for _ in range(12):
            tasks.start_soon(ask)
        # One counts and eight wait.
        await until(lambda: len(answers) >= 3)
        assert {problem(answer) for answer in answers} == {(503, "database_unavailable")}
        # None at the moment at which one has waited for as long as a lock is waited for, and the next begins.
        assert await until(counting) == 1
        assert (await desk.get("/api/ai/kinds")).status_code == 200
    assert len(answers) == 12


async def test_jobs_that_ran_are_counted_with_what_they_cost(database_url: str, tmp_path: Path) -> None:
    async with open_house(database_url) as house, start_worker(database_url, providers=write_providers(tmp_path)):
        for _ in range(2):
            job = await house.api.create_soon("summarize", {"text": "One is here. Two is there."})
            assert (await house.api.ended(job["job_id"]))["status"] == "succeeded"
        found = (await house.api.client.get("/api/ai/stats?window=1h")).json()
    assert (found["jobs_created"], found["jobs_accepted"], found["provider_attempts"]) == (2, 2, 2)
    assert (found["share_without_retry"], found["job_retry_rate"], found["lease_expired_count"]) == (1, 0, 0)
    assert found["cost_per_accepted_job"] == [
        {
            "provider": "extractive",
            "model": None,
            "cost_usd": "0",
            "accepted_jobs": 2,
            "cost_per_accepted_job": "0",
            "provider_attempts": 2,
            "provider_unknown_outcomes": 0,
            "calls_with_unknown_cost": 0,
        }
    ]
    assert 0 <= found["queue_wait_s"]["p50"] <= found["queue_wait_s"]["p95"] <= found["queue_wait_s"]["p99"] < 30
    assert 0 < found["run_time_s"]["p50"] <= found["run_time_s"]["p99"] < 30
