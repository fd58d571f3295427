"""One idempotency key, fifty callers at once, two gateways: one job."""

from __future__ import annotations

import anyio
import httpx
import pytest

from schema.kinds import JobKind, register_kind
from tests.faults.house import open_house
from tests.support.api import call_api
from tests.support.servers import start_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

CALLERS = 50
NOTE = JobKind(
    kind="note",
    version=1,
    input_schema={"type": "object"},
    repeat="safe",
    time_limit_s=600,
    calls_provider=False,
    default_provider=None,
    default_model=None,
    choices={},
)
# The same by RFC 8785, though not by their bytes.
BODIES = (
    '{"kind": "note", "input": {"a": 1, "b": "\\u00e9"}}',
    '{"input":{"b":"\u00e9","a":1.0},"kind":"note"}',
)


async def test_fifty_identical_posts_at_once_make_one_job(database_url: str) -> None:
    async with open_house(database_url) as house, start_gateway(database_url) as second:
        await register_kind(house.database, NOTE)
        answers: list[httpx.Response] = []

        async def post(client: httpx.AsyncClient, number: int) -> None:
            headers = {"Idempotency-Key": "one and the same", "Content-Type": "application/json"}
            answers.append(await client.post("/api/ai/jobs", content=BODIES[number % 2].encode(), headers=headers))

        async with call_api(second.url, house.key) as by_second, anyio.create_task_group() as callers:
            for number in range(CALLERS):
                client = (house.api if number % 4 < 2 else by_second).client
                callers.start_soon(post, client, number)
        assert sorted(answer.status_code for answer in answers) == [200] * (CALLERS - 1) + [202]
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        replayed = [answer.headers.get("Idempotent-Replayed") for answer in answers if answer.status_code == 200]
        assert replayed == ["true"] * (CALLERS - 1)
        assert await house.database.fetchval("SELECT count(*) FROM outlive.ai_jobs") == 1
        assert await house.database.fetchval("SELECT count(*) FROM outlive.job_events") == 1
        assert await house.database.fetchval("SELECT count(*) FROM outlive.job_contents") == 1
