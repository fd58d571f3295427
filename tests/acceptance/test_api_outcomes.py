"""Outcomes over HTTP: in pages, with a long poll, for back ends only. tests/database has the order and its races."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anyio
import pytest

from gateway.outcome_cursors import decode_outcome_cursor, encode_outcome_cursor
from schema.outcomes import OutcomeCursor
from tests.acceptance.conftest import Desk, problem
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}


async def cancelled(desk: Desk, credential: str | None = None, **fields: object) -> str:
    job_id = str((await desk.post({**WORK, **fields}, uuid4().hex, credential)).json()["job_id"])
    answer = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth(credential))
    assert answer.status_code == 202
    return job_id


async def page(desk: Desk, credential: str | None = None, **query: object) -> tuple[list[dict[str, Any]], str]:
    answer = await desk.client.get(
        "/api/ai/outcomes", params={k: str(v) for k, v in query.items()}, headers=desk.auth(credential)
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {"outcomes", "next"}
    return body["outcomes"], body["next"]


async def at_the_end(desk: Desk, credential: str | None = None) -> str:
    """The cursor behind all that has ended so far, which a job of this moment marks."""
    last = await cancelled(desk, credential)

    async def behind() -> str | None:
        cursor, seen = "", False
        while True:
            found, cursor = await page(desk, credential, **({"after": cursor} if cursor else {}))
            seen = seen or last in {outcome["job_id"] for outcome in found}
            if not found:
                return cursor if seen else None

    cursor = await until(behind, 30, what="the outcome of the last job")
    assert cursor is not None
    return cursor


async def test_an_outcome_says_how_the_job_ended_in_the_job_s_own_words(desk: Desk) -> None:
    cursor = await at_the_end(desk)
    job_id = await cancelled(desk, user_id="ann", metadata={"order": 7})
    found, _ = await page(desk, after=cursor, wait=30)
    job = (await desk.get(f"/api/ai/jobs/{job_id}")).json()
    (outcome,) = found
    names = ["job_id", "status", "kind", "user_id", "metadata", "retry_of", "created_at", "finished_at", "error"]
    assert list(outcome) == names
    assert outcome == {name: job[name] for name in names}
    assert (outcome["status"], outcome["error"]) == ("cancelled", None)


async def test_pages_follow_each_other_and_the_end_keeps_its_cursor(desk: Desk) -> None:
    cursor = await at_the_end(desk)
    jobs = [await cancelled(desk) for _ in range(3)]
    read: list[str] = []
    while len(read) < 3:
        found, cursor = await page(desk, after=cursor, wait=30, limit=2)
        read.extend(outcome["job_id"] for outcome in found)
        assert len(found) in (1, 2)
    assert read == jobs
    assert await page(desk, after=cursor) == ([], cursor)


async def test_a_long_poll_ends_with_the_first_outcome_or_with_its_time(desk: Desk) -> None:
    cursor = await at_the_end(desk)
    assert await page(desk, after=cursor, wait=1) == ([], cursor)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled, desk)
            found, _ = await page(desk, after=cursor, wait=50)
    assert len(found) == 1


async def test_a_tenant_sees_its_own_and_an_operator_all(desk: Desk) -> None:
    mine, all_ends = await at_the_end(desk), await at_the_end(desk, desk.operator_key)
    foreign = await cancelled(desk, desk.other_key)
    found, _ = await page(desk, desk.operator_key, after=all_ends, wait=30)
    assert [outcome["job_id"] for outcome in found] == [foreign]
    jobs = {outcome["job_id"] for outcome in (await page(desk, after=mine))[0]}
    assert foreign not in jobs


async def test_a_token_is_not_enough_and_a_key_is_needed(desk: Desk) -> None:
    token = await desk.token(user="ann", scope=["read"])
    assert problem(await desk.get("/api/ai/outcomes", token)) == (403, "forbidden")
    assert problem(await desk.client.get("/api/ai/outcomes")) == (401, "unauthorized")


@pytest.mark.parametrize("cursor", ["", "0", "x" * 31, "x" * 33, "x" * 31 + "=", "x" * 31 + "+", "\u00e9" * 32])
async def test_what_is_no_cursor_of_ours_is_400(desk: Desk, cursor: str) -> None:
    answer = await desk.client.get("/api/ai/outcomes", params={"after": cursor}, headers=desk.auth())
    assert problem(answer) == (400, "bad_cursor")


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "wait=51", "wait=-1", "cursor=1", "limit=1&limit=2"])
async def test_a_query_that_is_not_right_is_400(desk: Desk, query: str) -> None:
    assert problem(await desk.get(f"/api/ai/outcomes?{query}")) == (400, "invalid_query")


async def test_any_text_of_the_form_is_taken(desk: Desk) -> None:
    """A cursor guards nothing: what a caller may see is decided by its key. The largest one is behind everything."""
    for text in ("x" * 32, "_" * 32):
        assert await page(desk, after=text) == ([], text)


@pytest.mark.parametrize("cursor", [OutcomeCursor(0, uuid4()), OutcomeCursor(2**64 - 1, uuid4())])
async def test_a_cursor_comes_back_as_it_went(cursor: OutcomeCursor) -> None:
    assert decode_outcome_cursor(encode_outcome_cursor(cursor)) == cursor
