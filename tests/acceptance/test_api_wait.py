"""Prefer: wait=N on what makes a job, and what becomes of a job whose client left meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import orjson
import pytest
from starlette.datastructures import Headers

from gateway.preferences import preferred_wait
from schema.kinds import register_kind
from tests.acceptance.conftest import NOTE, Desk, problem
from tests.support.api import Api, call_api, make_key
from tests.support.jobs import opened
from tests.support.servers import fast_extractive, start_gateway, start_worker
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}
WITH_CLIENT = {**WORK, "on_disconnect": "cancel"}
TEXT = "One sentence tells of a harbour and its many ships. " * 40


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("wait=10", 10),
        ("Wait = 5", 5),
        ('respond-async, wait="7"; x=y', 7),
        ('foo="a, wait=3", wait=4', 4),
        ("wait=0", 0),
        ("wait=51", 50),
        ("wait=" + "9" * 5000, 50),
        ("wait=" + "0" * 5000 + "8", 8),
        ("wait=1, wait=2", 1),
        ("wait=x, wait=2", None),
        ("wait", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("wait=\xb2", None),
        ('wait="1', None),
        ("waiting=1", None),
        ("return=minimal", None),
        ("", None),
    ],
)
async def test_what_is_read_out_of_prefer(header: str, seconds: int | None) -> None:
    assert preferred_wait(Headers({"prefer": header})) == seconds


async def found(desk: Desk, key: str) -> str:
    """The id of the job that this key made, once it is there."""

    async def look() -> object:
        return await desk.database.fetchval("SELECT id FROM outlive.ai_jobs WHERE idempotency_key = $1", key)

    return str(await until(look, what="the job of the request"))


async def events_of(desk: Desk, job_id: str) -> list[dict[str, Any]]:
    log = (await desk.get(f"/api/ai/jobs/{job_id}/events", Accept="application/json")).json()
    return list(log["events"])


async def test_a_job_that_does_not_end_in_time_is_202(desk: Desk) -> None:
    began = time.monotonic()
    answer = await desk.post(WORK, "in vain", Prefer="wait=1")
    assert 1 <= time.monotonic() - began < 10
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "wait=1")
    assert answer.json()["status"] == "queued"
    again = await desk.post(WORK, "in vain", Prefer="wait=0")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json()["status"] == "queued"


async def test_a_malformed_preference_is_ignored(desk: Desk) -> None:
    answer = await desk.post(WORK, "ignored", Prefer="wait=soon")
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


async def test_the_end_is_answered_at_once_and_to_a_replay_too(desk: Desk) -> None:
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await desk.post(WORK, "ends", Prefer="wait=500"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post)
            job_id = await found(desk, "ends")
            tasks.start_soon(post)
            await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth())
    for answer in answers:
        assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=50")
        assert (answer.json()["job_id"], answer.json()["status"]) == (job_id, "cancelled")
    assert sorted("idempotent-replayed" in answer.headers for answer in answers) == [False, True]


async def test_a_retry_waits_as_well(desk: Desk) -> None:
    old_id = (await desk.post(WORK, "before the retry")).json()["job_id"]
    await desk.client.post(f"/api/ai/jobs/{old_id}/cancel", headers=desk.auth())
    answers: list[httpx.Response] = []

    async def retry() -> None:
        headers = {**desk.auth(), "Idempotency-Key": "retry that waits", "Prefer": "wait=50"}
        answers.append(await desk.client.post(f"/api/ai/jobs/{old_id}/retry", headers=headers))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retry)
            job_id = await found(desk, "retry that waits")
            await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth())
    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(200, "cancelled")]


async def test_who_waits_holds_no_connection_of_the_pool(database_url: str) -> None:
    """Ten wait; a pool of two still answers."""
    async with (
        start_gateway(database_url, {"OUTLIVE_POOL_SIZE": "2"}) as gateway,
        call_api(gateway.url, await make_key(database_url)) as api,
        a_kind(database_url),
    ):
        answered: list[httpx.Response] = []

        async def post() -> None:
            answered.append(await api.client.post("/api/ai/jobs", json=WORK, headers=_headers(uuid4().hex)))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(post)
            await until(lambda: _count(api, 10), what="ten jobs")
            with anyio.fail_after(5):
                assert (await api.client.get("/api/ai/kinds")).status_code == 200
            assert answered == []
            tasks.cancel_scope.cancel()


async def test_cancel_on_disconnect_needs_the_header(desk: Desk) -> None:
    before = await desk.rows()
    for headers in ({}, {"Prefer": "wait=soon"}):
        answer = await desk.post(WITH_CLIENT, "no header", **headers)
        assert problem(answer) == (422, "invalid_input")
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/on_disconnect"]
    assert await desk.rows() == before


async def test_a_client_that_leaves_takes_its_job_with_it_where_it_asked_for_that(desk: Desk) -> None:
    async with leaving(desk, WITH_CLIENT, "taken along"):
        job_id = await found(desk, "taken along")
    await until(lambda: _has_status(desk, job_id, "cancelled"), what="the cancelled job")
    assert [event["event"] for event in await events_of(desk, job_id)] == ["status", "cancel_requested", "cancelled"]
    assert (await events_of(desk, job_id))[1]["data"] == {"by": "disconnect"}


async def test_nobody_else_who_leaves_does(desk: Desk) -> None:
    """Neither the client of a request that did not ask for it, nor that of a replay."""
    async with leaving(desk, WORK, "left alone"):
        alone = await found(desk, "left alone")
    first = await desk.post(WITH_CLIENT, "asked before", Prefer="wait=0")
    assert first.status_code == 202
    async with leaving(desk, WITH_CLIENT, "asked before"):
        pass
    # A third client that does take its job along: when that has been cancelled, the others would have been.
    async with leaving(desk, WITH_CLIENT, "the third"):
        third = await found(desk, "the third")
    await until(lambda: _has_status(desk, third, "cancelled"), what="the cancelled job")
    for job_id in (alone, first.json()["job_id"]):
        assert (await desk.get(f"/api/ai/jobs/{job_id}")).json()["status"] == "queued"


async def test_a_running_job_says_that_its_client_left(database_url: str, tmp_path: Path) -> None:
    providers = fast_extractive(tmp_path, words_per_second=2)
    async with (
        start_gateway(database_url) as gateway,
        start_worker(database_url, providers=providers),
        call_api(gateway.url, await make_key(database_url)) as api,
    ):
        body = {"kind": "summarize", "input": {"text": TEXT, "sentences": 20}, "on_disconnect": "cancel"}
        async with anyio.create_task_group() as tasks:

            async def post() -> None:
                await api.client.post("/api/ai/jobs", json=body, headers=_headers("leaves"))

            tasks.start_soon(post)

            async def running() -> str | None:
                jobs = (await api.client.get("/api/ai/jobs?status=running")).json()["jobs"]
                return str(jobs[0]["job_id"]) if jobs and jobs[0]["last_event_id"] > 2 else None

            job_id = await until(running, 30, what="a running job")
            tasks.cancel_scope.cancel()
        assert job_id is not None
        assert (await api.ended(job_id))["status"] == "cancelled"
        log = await api.client.get(f"/api/ai/jobs/{job_id}/events", headers={"Accept": "application/json"})
        wishes = [event["data"] for event in log.json()["events"] if event["event"] == "cancel_requested"]
        assert wishes == [{"by": "disconnect"}]


async def test_a_gateway_that_stops_answers_and_cancels_nothing(database_url: str) -> None:
    async with (
        start_gateway(database_url) as gateway,
        call_api(gateway.url, await make_key(database_url)) as api,
        a_kind(database_url),
    ):
        answers: list[httpx.Response] = []

        async def post() -> None:
            answers.append(await api.client.post("/api/ai/jobs", json=WITH_CLIENT, headers=_headers("drained")))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(post)
                await until(lambda: _count(api, 1), what="the job")
                gateway.send(signal.SIGTERM)
            await gateway.wait()
        assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(202, "queued")]
        await gateway.start_again()
        assert [job["status"] for job in await _jobs(api)] == ["queued"]


async def test_a_gateway_that_crashes_cancels_nothing(database_url: str) -> None:
    async with (
        start_gateway(database_url) as gateway,
        call_api(gateway.url, await make_key(database_url)) as api,
        a_kind(database_url),
    ):

        async def post() -> None:
            with pytest.raises(httpx.TransportError):
                await api.client.post("/api/ai/jobs", json=WITH_CLIENT, headers=_headers("crashed"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post)
            await until(lambda: _count(api, 1), what="the job")
            await gateway.kill()
        await gateway.start_again()
        (job,) = await _jobs(api)
        assert (job["status"], job["cancel_requested"]) == ("queued", False)


@asynccontextmanager
async def leaving(desk: Desk, body: dict[str, Any], key: str) -> AsyncIterator[None]:
    """A client that has asked and waits, and closes its connection at the end of the block."""
    content = orjson.dumps(body)
    head = (
        f"POST /api/ai/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {desk.key}\r\nIdempotency-Key: {key}\r\n"
        f"Content-Type: application/json\r\nPrefer: wait=50\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    async with await anyio.connect_tcp("127.0.0.1", desk.client.base_url.port or 80) as stream:
        await stream.send(head.encode() + content)
        yield


@asynccontextmanager
async def a_kind(database_url: str) -> AsyncIterator[None]:
    """The kind `note`, which no worker has."""
    async with opened(database_url, 1) as database:
        await register_kind(database, NOTE)
    yield


def _headers(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key, "Prefer": "wait=50"}


async def _jobs(api: Api) -> list[dict[str, Any]]:
    return list((await api.client.get("/api/ai/jobs")).json()["jobs"])


async def _count(api: Api, count: int) -> bool:
    return len(await _jobs(api)) == count


async def _has_status(desk: Desk, job_id: str, status: str) -> bool:
    return bool((await desk.get(f"/api/ai/jobs/{job_id}")).json()["status"] == status)
