"""`max_queued` over HTTP: exactly so many wait, and what was accepted once stays accepted. docs/protocol.md 5."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import anyio
import httpx
import pytest

from schema.endings import Ending, end_run
from schema.kinds import register_kind
from schema.runs import Ask, AttemptOutcome, Failure, claim
from schema.tenants import Terms, add_key, add_tenant
from tests.acceptance.conftest import NOTE, Desk, problem

pytestmark = pytest.mark.anyio

MOST = 5
INPUT = {"text": "one"}


@pytest.fixture
async def key(desk: Desk) -> str:
    """Of a tenant of its own, of which five jobs may wait."""
    await register_kind(desk.database, NOTE)
    return await add_key(desk.database, await add_tenant(desk.database, f"t{uuid4().hex}", Terms(max_queued=MOST)))


async def post(desk: Desk, key: str, name: str = "", **fields: object) -> httpx.Response:
    return await desk.post({"kind": "note", "input": INPUT, **fields}, name or uuid4().hex, key)


async def filled(desk: Desk, key: str) -> list[UUID]:
    answers = [await post(desk, key) for _ in range(MOST)]
    assert [answer.status_code for answer in answers] == [202] * MOST
    return [UUID(answer.json()["job_id"]) for answer in answers]


async def test_of_fifty_at_once_exactly_so_many_are_accepted(desk: Desk, key: str) -> None:
    answers: dict[str, httpx.Response] = {}

    async def one(name: str) -> None:
        answers[name] = await post(desk, key, name)

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, f"of-fifty-{number}")
    assert Counter(answer.status_code for answer in answers.values()) == {202: MOST, 429: 50 - MOST}
    for name, answer in answers.items():
        if answer.status_code == 202:
            # What was accepted stays so, however full it is.
            again = await post(desk, key, name)
            assert (again.status_code, again.json()["job_id"]) == (200, answer.json()["job_id"])
        else:
            assert problem(answer) == (429, "queue_full")
    waits = [int(answer.headers["retry-after"]) for answer in answers.values() if answer.status_code == 429]
    assert min(waits) >= 1
    assert len(set(waits)) > 1, "who is refused together must not come back together"


async def test_a_key_that_was_refused_is_not_used_up(desk: Desk, key: str) -> None:
    await filled(desk, key)
    before = await desk.rows()
    assert problem(await post(desk, key, "kept")) == (429, "queue_full")
    assert await desk.rows() == before
    await claim_all(desk)
    assert (await post(desk, key, "kept")).status_code == 202


async def claim_all(desk: Desk) -> None:
    """What waits is started, of whatever tenant, and fails."""
    for run in (await claim(desk.database, Ask("w", ["note"], ["alpha"], 100, 60))).runs:
        failure = Failure("some_code", "permanent", "No; ask for something else.")
        assert await end_run(desk.database, Ending.failed(run.lease, run.last_seq, failure, AttemptOutcome.FAILED))


async def test_what_has_started_makes_room(desk: Desk, key: str) -> None:
    mine = set(await filled(desk, key))
    taken: set[UUID] = set()
    while not taken & mine:
        claimed = await claim(desk.database, Ask("w", ["note"], ["alpha"], 1, 60))
        taken |= {run.lease.job_id for run in claimed.runs}
    assert (await post(desk, key)).status_code == 202
    assert problem(await post(desk, key)) == (429, "queue_full")


async def test_what_waits_for_its_time_counts_too(desk: Desk, key: str) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for _ in range(MOST):
        assert (await post(desk, key, run_at=later)).status_code == 202
    assert problem(await post(desk, key)) == (429, "queue_full")


async def test_a_retry_by_the_user_obeys_it(desk: Desk, key: str) -> None:
    (first, *_) = await filled(desk, key)
    await claim_all(desk)
    await filled(desk, key)
    retry = f"/api/ai/jobs/{first}/retry"
    headers = {**desk.auth(key), "Idempotency-Key": uuid4().hex}
    assert problem(await desk.client.post(retry, headers=headers)) == (429, "queue_full")
    await claim_all(desk)
    assert (await desk.client.post(retry, headers=headers)).status_code == 202


async def test_nobody_else_is_touched(desk: Desk, key: str) -> None:
    await filled(desk, key)
    assert problem(await post(desk, key)) == (429, "queue_full")
    assert (await post(desk, desk.other_key)).status_code == 202
