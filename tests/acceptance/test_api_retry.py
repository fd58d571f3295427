"""Retry over HTTP: a new job with the same input, once for each key, and only of what did not succeed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest

from tests.acceptance.conftest import Desk, problem

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one", "any": [1, 2.5, "\u00e9"]}}
_END = """
    UPDATE outlive.ai_jobs SET status = $2::text::outlive.job_status, finished_at = now(),
        error_code = CASE WHEN $2 = 'failed' THEN 'handler_error' END
    WHERE id = $1
"""


async def ended(desk: Desk, status: str = "failed", credential: str | None = None, **fields: object) -> str:
    """The id of a job that has ended in that way."""
    job_id = str((await desk.post({**WORK, **fields}, uuid4().hex, credential)).json()["job_id"])
    await desk.database.execute(_END, job_id, status)
    return job_id


async def retry(desk: Desk, job_id: object, key: str | None = "", credential: str | None = None) -> httpx.Response:
    """With a key of its own where none is given; None sends no key."""
    headers = {} if key is None else {"Idempotency-Key": key or uuid4().hex}
    return await desk.client.post(f"/api/ai/jobs/{job_id}/retry", headers={**desk.auth(credential), **headers})


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_a_retry_is_a_new_job_with_all_that_was_asked_for(desk: Desk, status: str) -> None:
    asked: dict[str, Any] = {
        "metadata": {"a": [1]},
        "user_id": "ann",
        "priority": 7,
        "max_attempts": 5,
        "on_unknown": "fail",
    }
    old_id = await ended(desk, status, model="a2", **asked)
    answer = await retry(desk, old_id)
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/api/ai/jobs/{job['job_id']}"
    assert (job["retry_of"], job["status"], job["attempts"], job["last_event_id"]) == (old_id, "queued", 0, 1)
    old = (await desk.get(f"/api/ai/jobs/{old_id}")).json()
    assert old["status"] == status
    same = ("kind", "user_id", "metadata", "priority", "provider", "model", "max_attempts")
    assert [job[name] for name in same] == [old[name] for name in same]
    inputs = await desk.database.fetch(
        "SELECT c.input, j.on_unknown FROM outlive.job_contents c JOIN outlive.ai_jobs j ON j.id = c.job_id"
        " WHERE c.job_id = ANY($1::uuid[])",
        [old_id, job["job_id"]],
    )
    assert [tuple(row) for row in inputs] == [tuple(inputs[0])] * 2
    log = (await desk.get(f"/api/ai/jobs/{job['job_id']}/events", Accept="application/json")).json()
    assert log["events"] == [{"id": 1, "event": "status", "data": {"status": "queued"}}]


async def test_times_are_not_copied(desk: Desk) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    old_id = await ended(desk, "cancelled", run_at=tomorrow, start_before=tomorrow)
    job = (await retry(desk, old_id)).json()
    assert job["status"] == "queued"
    row = await desk.database.fetchrow(
        "SELECT run_at <= now() AS due, start_before FROM outlive.ai_jobs WHERE id = $1", job["job_id"]
    )
    assert row is not None
    assert tuple(row) == (True, None)


async def test_the_same_key_gives_the_same_job_and_does_nothing_else(desk: Desk) -> None:
    old_id = await ended(desk)
    first = await retry(desk, old_id, "retried once")
    before = await desk.rows()
    again = await retry(desk, old_id, "retried once")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json()["job_id"] == first.json()["job_id"]
    assert await desk.rows() == before
    assert (await retry(desk, old_id, "retried twice")).json()["job_id"] != first.json()["job_id"]


async def test_many_retries_at_once_make_one_job(desk: Desk) -> None:
    old_id = await ended(desk)
    answers: list[httpx.Response] = []

    async def one() -> None:
        answers.append(await retry(desk, old_id, "many"))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(one)
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
    assert len({answer.json()["job_id"] for answer in answers}) == 1


async def test_a_key_that_made_something_else_is_409(desk: Desk) -> None:
    await desk.post(WORK, "made by create")
    one, other = await ended(desk), await ended(desk)
    assert problem(await retry(desk, one, "made by create")) == (409, "idempotency_key_reused")
    assert (await retry(desk, one, "made by retry")).status_code == 202
    assert problem(await retry(desk, other, "made by retry")) == (409, "idempotency_key_reused")
    assert problem(await desk.post(WORK, "made by retry")) == (409, "idempotency_key_reused")


async def test_what_has_not_ended_or_has_succeeded_is_409_and_uses_no_key_up(desk: Desk) -> None:
    waiting = (await desk.post(WORK, uuid4().hex)).json()["job_id"]
    before = await desk.rows()
    assert problem(await retry(desk, waiting, "kept for later")) == (409, "not_finished")
    assert await desk.rows() == before
    await desk.database.execute(_END, waiting, "failed")
    assert (await retry(desk, waiting, "kept for later")).status_code == 202
    assert problem(await retry(desk, await ended(desk, "succeeded"))) == (409, "already_finished")


async def test_what_is_not_seen_is_not_there_and_a_key_is_needed(desk: Desk) -> None:
    old_id = await ended(desk)
    assert problem(await retry(desk, old_id, None)) == (400, "idempotency_key_missing")
    assert problem(await retry(desk, old_id, "", desk.other_key)) == (404, "not_found")
    assert problem(await retry(desk, uuid4())) == (404, "not_found")
    assert problem(await retry(desk, "nonsense")) == (404, "not_found")


async def test_a_token_needs_scope_create_and_all_jobs(desk: Desk) -> None:
    old_id = await ended(desk, user_id="ann")
    reader = await desk.token(user="ann", scope=["read", "cancel"])
    assert problem(await retry(desk, old_id, "", reader)) == (403, "forbidden")
    named = await desk.token(jobs=[old_id], scope=["read", "create"])
    assert problem(await retry(desk, old_id, "", named)) == (403, "forbidden")
    ann, bob = [await desk.token(user=user, scope=["read", "create"]) for user in ("ann", "bob")]
    assert problem(await retry(desk, old_id, "", bob)) == (404, "not_found")
    answer = await retry(desk, old_id, "", ann)
    assert (answer.status_code, answer.json()["user_id"]) == (202, "ann")


async def test_an_operator_leaves_the_job_where_it_belongs(desk: Desk) -> None:
    old_id = await ended(desk, "failed", desk.other_key)
    answer = await retry(desk, old_id, "", desk.operator_key)
    assert answer.status_code == 202
    assert (await desk.get(answer.headers["location"], desk.other_key)).status_code == 200
    assert problem(await desk.get(answer.headers["location"])) == (404, "not_found")


async def test_an_input_that_is_gone_cannot_be_tried_again(desk: Desk) -> None:
    old_id = await ended(desk)
    await desk.database.execute("DELETE FROM outlive.job_contents WHERE job_id = $1", old_id)
    before = await desk.rows()
    assert problem(await retry(desk, old_id)) == (404, "not_found")
    assert await desk.rows() == before
