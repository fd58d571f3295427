"""Cancel and attempts over HTTP; the tests of the worker say what becomes of a run that is cancelled."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.conftest import Desk, problem
from tests.support.api import call_api, make_key
from tests.support.servers import fast_extractive, start_gateway, start_worker
from tests.support.sse_client import read_to_end
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WORK = {"kind": "note", "input": {"text": "one"}}
TEXT = "One sentence tells of a harbour and its many ships. " * 40


async def test_a_waiting_job_is_cancelled_once_and_for_all(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "to-cancel")).json()["job_id"]
    answer = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth())
    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["cancel_requested"]) == ("cancelled", True)
    again = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth())
    assert again.status_code == 202
    log = (await desk.get(f"/api/ai/jobs/{job_id}/events", Accept="application/json")).json()
    assert [event["event"] for event in log["events"]] == ["status", "cancel_requested", "cancelled"]
    assert log["finished"]


async def test_what_ended_otherwise_cannot_be_cancelled(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "ended")).json()["job_id"]
    await desk.database.execute(
        "UPDATE outlive.ai_jobs SET status = 'succeeded', finished_at = now() WHERE id = $1", job_id
    )
    answer = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth())
    assert problem(answer) == (409, "already_finished")


async def test_a_foreign_job_is_not_there_and_a_reader_may_not(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "mine")).json()["job_id"]
    foreign = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth(desk.other_key))
    assert problem(foreign) == (404, "not_found")
    absent = await desk.client.post(f"/api/ai/jobs/{uuid4()}/cancel", headers=desk.auth())
    assert problem(absent) == (404, "not_found")
    reader = await desk.token(jobs=[job_id], scope=["read"])
    refused = await desk.client.post(f"/api/ai/jobs/{job_id}/cancel", headers=desk.auth(reader))
    assert problem(refused) == (403, "forbidden")
    assert (await desk.get(f"/api/ai/jobs/{job_id}")).json()["status"] == "queued"


async def test_attempts_are_for_back_ends(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "attempts")).json()["job_id"]
    assert (await desk.get(f"/api/ai/jobs/{job_id}/attempts")).json() == {"attempts": []}
    token = await desk.token(jobs=[job_id], scope=["read"])
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}/attempts", token)) == (403, "forbidden")


async def test_a_run_of_another_process_is_cancelled_and_its_attempt_says_so(
    database_url: str, tmp_path: Path
) -> None:
    providers = fast_extractive(tmp_path, words_per_second=2)
    async with (
        start_gateway(database_url) as gateway,
        start_worker(database_url, providers=providers),
        call_api(gateway.url, await make_key(database_url)) as api,
    ):
        job = await api.create_soon("summarize", {"text": TEXT, "sentences": 20})
        path = f"/api/ai/jobs/{job['job_id']}"

        async def speaks() -> bool:
            return bool((await api.get(job["job_id"]))["last_event_id"] > 3)

        await until(speaks, what="a chunk")
        assert (await api.client.post(f"{path}/cancel")).status_code == 202
        await read_to_end(api.events_url(job))
        assert (await api.get(job["job_id"]))["status"] == "cancelled"
        log = (await api.client.get(f"{path}/events", headers={"Accept": "application/json"})).json()["events"]
        assert [event["event"] for event in log[-3:]] == ["cancel_requested", "external", "cancelled"]
        (attempt,) = (await api.client.get(f"{path}/attempts")).json()["attempts"]
        assert (attempt["outcome"], attempt["counted"]) == ("cancelled", True)
        (call,) = attempt["calls"]
        assert (call["provider"], call["outcome"], call["cost_usd"]) == ("extractive", "cancelled", "0")
