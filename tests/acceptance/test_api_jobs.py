"""Jobs over HTTP: created once, seen as the contract says, listed, their results."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio
import httpx
import jwt
import orjson
import pytest

from schema.kinds import register_kind
from tests.acceptance.conftest import NOTE, Desk, problem
from tests.support.servers import SECRET

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}


async def test_create_answers_202_with_the_whole_job_object(desk: Desk) -> None:
    answer = await desk.post({**WORK, "metadata": {"a": 1}, "user_id": "ann"}, "whole")
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/api/ai/jobs/{job['job_id']}"
    assert answer.headers["cache-control"] == "no-store"
    assert list(job) == [
        *("job_id", "kind", "status", "user_id", "metadata", "priority", "provider", "model", "attempts"),
        *("max_attempts", "cancel_requested", "retry_of", "created_at", "run_at", "started_at", "finished_at"),
        *("waiting_for", "last_event_id", "result", "error", "cost", "events_url"),
    ]
    assert job["status"] == "queued"
    assert (job["user_id"], job["metadata"], job["priority"]) == ("ann", {"a": 1}, 0)
    assert (job["provider"], job["model"]) == ("alpha", "a1")
    assert (job["attempts"], job["max_attempts"], job["last_event_id"]) == (0, 3, 1)
    assert job["waiting_for"] == "no_worker"
    assert job["cost"] == {"reserved_usd": None, "charged_usd": None, "provider_usd": None, "complete": True}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", job["created_at"])
    again = (await desk.get(answer.headers["location"])).json()
    assert {**again, "events_url": ""} == {**job, "events_url": ""}


async def test_202_means_committed_with_its_first_event(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "committed")).json()["job_id"]
    row = await desk.database.fetchrow(
        "SELECT c.input, e.kind::text, e.data FROM outlive.job_contents c JOIN outlive.job_events e USING (job_id)"
        " WHERE job_id = $1",
        job_id,
    )
    assert row is not None
    assert (orjson.loads(row["input"]), row["kind"]) == ({"text": "one"}, "status")
    assert orjson.loads(row["data"]) == {"status": "queued"}


async def test_the_same_request_again_gives_the_same_job_however_it_is_written(desk: Desk) -> None:
    first = await desk.post(b'{"kind":"note","input":{"text":"A","any":[1,2.5]},"priority":1}', "again")
    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    for spelling in (
        b'{"priority": 1.0, "input": {"any": [1e0, 25e-1], "text": "\\u0041"}, "kind": "note"}',
        b'{"kind":"note","input":{"text":"A","any":[1,2.5]},"priority":1}',
    ):
        answer = await desk.post(spelling, "again")
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
        assert answer.json()["job_id"] == first.json()["job_id"]


@pytest.mark.parametrize("other", [{**WORK, "priority": 0}, {**WORK, "input": {"text": "two"}}, {"nonsense": 1}])
async def test_another_body_under_a_used_key_is_409(desk: Desk, other: dict[str, Any]) -> None:
    """Defaults are not filled in, and an invalid body is another body too: the key decides first."""
    key = f"used {uuid4()}"
    await desk.post(WORK, key)
    before = await desk.rows()
    assert problem(await desk.post(other, key)) == (409, "idempotency_key_reused")
    assert await desk.rows() == before


async def test_a_replay_is_decided_before_the_body_is_judged(desk: Desk) -> None:
    """What was accepted stays accepted, whatever became of its kind."""
    body = {"kind": "gone", "input": {}}
    job = (await desk.post(WORK, "before")).json()
    digest = await desk.database.fetchval("SELECT request_hash FROM outlive.ai_jobs WHERE id = $1", job["job_id"])
    assert problem(await desk.post(body, "gone")) == (422, "unknown_kind")
    await desk.database.execute(
        "UPDATE outlive.ai_jobs SET request_hash = sha256($2) WHERE id = $1",
        job["job_id"],
        orjson.dumps(body, option=orjson.OPT_SORT_KEYS),
    )
    assert len(digest) == 32
    assert (await desk.post(body, "before")).status_code == 200


async def test_fifty_identical_requests_at_once_make_one_job(desk: Desk) -> None:
    answers: list[httpx.Response] = []

    async def post() -> None:
        answers.append(await desk.post({**WORK, "priority": 7}, "fifty"))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(post)
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert await desk.database.fetchval("SELECT count(*) FROM outlive.ai_jobs WHERE priority = 7") == 1


async def test_a_refusal_does_not_use_up_the_key(desk: Desk) -> None:
    assert problem(await desk.post({"kind": "note", "input": {}}, "kept")) == (422, "invalid_input")
    assert (await desk.post(WORK, "kept")).status_code == 202


async def test_keys_belong_to_the_tenant_and_for_tokens_to_the_user(desk: Desk) -> None:
    ann, bob = [await desk.token(user=user, scope=["create", "read"]) for user in ("ann", "bob")]
    answers = [await desk.post(WORK, "mine", who) for who in (desk.key, desk.other_key, ann, bob)]
    assert [answer.status_code for answer in answers] == [202] * 4
    assert len({answer.json()["job_id"] for answer in answers}) == 4
    assert [answer.json()["user_id"] for answer in answers] == [None, None, "ann", "bob"]


async def test_run_at_in_the_future_schedules(desk: Desk) -> None:
    moment = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    east = moment.astimezone(tz=UTC).isoformat().replace("+00:00", "-00:00")
    job = (await desk.post({**WORK, "run_at": east}, "later")).json()
    assert (job["status"], job["waiting_for"]) == ("scheduled", "run_at")
    assert job["run_at"] == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"model": "a2"}, ("alpha", "a2")),
        ({"provider": "alpha"}, ("alpha", "a1")),
        ({"provider": "beta"}, ("beta", None)),
        ({"provider": "beta", "model": "anything"}, ("beta", "anything")),
        ({"model": "g1"}, ("gamma", "g1")),
        ({"provider": "gamma"}, ("gamma", "g1")),
    ],
)
async def test_provider_and_model_are_fixed_at_creation(
    desk: Desk, asked: dict[str, str], given: tuple[str, str | None]
) -> None:
    job = (await desk.post({**WORK, **asked}, str(uuid4()))).json()
    assert (job["provider"], job["model"]) == given


@pytest.mark.parametrize("asked", [{"provider": "delta"}, {"model": "a9"}, {"provider": "alpha", "model": "g1"}])
async def test_a_provider_that_nobody_offers_is_422(desk: Desk, asked: dict[str, str]) -> None:
    assert problem(await desk.post({**WORK, **asked}, str(uuid4()))) == (422, "unknown_provider")


async def test_text_that_no_database_holds_is_replaced(desk: Desk) -> None:
    answer = await desk.post(b'{"kind":"note","input":{"text":"a\\u0000b\\ud800c\\ud83d\\ude00\\u2028"}}', "unclean")
    assert answer.status_code == 202
    stored = await desk.database.fetchval(
        "SELECT input FROM outlive.job_contents WHERE job_id = $1", answer.json()["job_id"]
    )
    assert orjson.loads(stored) == {"text": "a\ufffdb\ufffdc\U0001f600\u2028"}
    clean = '{"kind":"note","input":{"text":"a\ufffdb\ufffdc\U0001f600\u2028"}}'.encode()
    assert (await desk.post(clean, "unclean")).status_code == 200


@pytest.mark.parametrize(
    "text", ["\u0416" * 1_000_000, "x" * 100_000, "Word. " * 100_000, "\r\n" * 1000, "\U0001f600" * 1000]
)
async def test_large_and_odd_texts_arrive_whole(desk: Desk, text: str) -> None:
    answer = await desk.post({"kind": "note", "input": {"text": text}}, str(uuid4()))
    assert answer.status_code == 202
    stored = await desk.database.fetchval(
        "SELECT input FROM outlive.job_contents WHERE job_id = $1", answer.json()["job_id"]
    )
    assert orjson.loads(stored)["text"] == text


async def test_list_is_newest_first_and_pages(desk: Desk) -> None:
    ids = [(await desk.post(WORK, str(uuid4()), desk.other_key)).json()["job_id"] for _ in range(5)][::-1]
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await desk.get(f"/api/ai/jobs?limit=2{cursor}", desk.other_key)).json()
        assert all("result" not in job for job in page["jobs"])
        seen += [job["job_id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen[:5] == ids
    assert len(seen) == len(set(seen))


async def test_list_is_filtered(desk: Desk) -> None:
    made = (await desk.post({**WORK, "user_id": "carl"}, "of carl")).json()["job_id"]
    for query, wanted in (
        ("user_id=carl", [made]),
        ("user_id=carl&status=queued&kind=note", [made]),
        ("user_id=carl&status=running", []),
        ("user_id=carl&kind=other", []),
    ):
        listed = (await desk.get(f"/api/ai/jobs?{query}")).json()["jobs"]
        assert [job["job_id"] for job in listed] == wanted, query


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "limit=1&limit=2", "status=done", "unknown=1", "kind=%00"]
)
async def test_a_query_that_is_wrong_is_400(desk: Desk, query: str) -> None:
    assert problem(await desk.get(f"/api/ai/jobs?{query}")) == (400, "invalid_query")


async def test_a_list_cursor_of_ours_only(desk: Desk) -> None:
    assert problem(await desk.get("/api/ai/jobs?cursor=abc")) == (400, "bad_cursor")


@pytest.mark.parametrize("name", ["", "/result", "/events"])
@pytest.mark.parametrize(
    "job_id", ["018f0000-0000-7000-8000-000000000000", "x", "018F0000-0000-7000-8000-00000000000A"]
)
async def test_a_job_that_is_not_there_is_404(desk: Desk, job_id: str, name: str) -> None:
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}{name}")) == (404, "not_found")


@pytest.mark.parametrize("name", ["", "/result", "/events"])
async def test_a_job_of_another_tenant_is_404(desk: Desk, name: str) -> None:
    job_id = (await desk.post(WORK, str(uuid4()))).json()["job_id"]
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}{name}", desk.other_key)) == (404, "not_found")


async def test_the_result_alone(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "with result")).json()["job_id"]
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}/result")) == (409, "not_finished")
    await desk.database.execute(
        "UPDATE outlive.ai_jobs SET status = 'succeeded', finished_at = now(), started_at = now() WHERE id = $1",
        job_id,
    )
    await desk.database.execute(
        """UPDATE outlive.job_contents SET result = '{"text": "done"}' WHERE job_id = $1""", job_id
    )
    assert (await desk.get(f"/api/ai/jobs/{job_id}/result")).json() == {"text": "done"}
    assert (await desk.get(f"/api/ai/jobs/{job_id}")).json()["result"] == {"text": "done"}


async def test_a_failed_job_says_why_in_our_words(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "failed")).json()["job_id"]
    await desk.database.execute(
        "UPDATE outlive.ai_jobs SET status = 'failed', finished_at = now(), error_code = 'refused',"
        " error_class = 'permanent' WHERE id = $1",
        job_id,
    )
    await desk.database.execute("UPDATE outlive.job_contents SET error_message = 'No.' WHERE job_id = $1", job_id)
    job = (await desk.get(f"/api/ai/jobs/{job_id}")).json()
    assert job["error"] == {"code": "refused", "class": "permanent", "message": "No."}


async def test_cost_is_what_is_known_and_never_a_zero_for_unknown(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "cost")).json()["job_id"]
    await desk.database.execute(
        "INSERT INTO outlive.job_attempts (job_id, attempt, worker, run_token) VALUES ($1, 1, 'w', $2)",
        job_id,
        uuid4(),
    )

    async def cost_after(call: int, usd: str) -> object:
        source = "NULL" if usd == "NULL" else "'local'"
        await desk.database.execute(
            "INSERT INTO outlive.provider_calls (job_id, attempt, call, provider, outcome, finished_at, cost_usd,"
            f" cost_source) VALUES ($1, 1, $2, 'alpha', 'succeeded', now(), {usd}, {source})",
            job_id,
            call,
        )
        cost = (await desk.get(f"/api/ai/jobs/{job_id}")).json()["cost"]
        return cost["provider_usd"], cost["complete"]

    assert await cost_after(1, "NULL") == (None, False)
    assert await cost_after(2, "0.0012") == ("0.0012", False)
    token = await desk.token(jobs=[job_id])
    assert (await desk.get(f"/api/ai/jobs/{job_id}", token)).json()["cost"] is None


async def test_events_url_reads_this_job_for_an_hour_and_nothing_else(desk: Desk) -> None:
    job = (await desk.post(WORK, "events url")).json()
    path, _, token = job["events_url"].partition("?token=")
    assert path == f"/api/ai/jobs/{job['job_id']}/events"
    claims = jwt.decode(token, SECRET, algorithms=["HS256"])
    assert (claims["tenant"], claims["jobs"], claims["scope"]) == ("acme", [job["job_id"]], ["read"])
    assert 3590 < claims["exp"] - datetime.now(UTC).timestamp() <= 3600
    assert (await desk.client.get(f"/api/ai/jobs/{job['job_id']}?token={token}")).status_code == 200
    events = await desk.client.get(job["events_url"], headers={"Accept": "application/json"})
    assert [event["event"] for event in events.json()["events"]] == ["status"]


async def test_events_url_never_outlives_the_token_that_asked(desk: Desk) -> None:
    job_id = (await desk.post(WORK, "short")).json()["job_id"]
    token = await desk.token(jobs=[job_id], ttl_seconds=60)
    inner = (await desk.get(f"/api/ai/jobs/{job_id}", token)).json()["events_url"].partition("?token=")[2]
    expiry = [jwt.decode(each, SECRET, algorithms=["HS256"])["exp"] for each in (inner, token)]
    assert expiry[0] == expiry[1]


async def test_events_url_of_one_who_may_only_create_opens_nothing(desk: Desk) -> None:
    token = await desk.token(user="ann", scope=["create"])
    job = (await desk.post(WORK, "only create", token)).json()
    assert job["events_url"] == f"/api/ai/jobs/{job['job_id']}/events"


async def test_kinds_are_listed_with_their_schemas(desk: Desk) -> None:
    (kind,) = (await desk.get("/api/ai/kinds")).json()["kinds"]
    assert (kind["kind"], kind["available"]) == ("note", True)
    assert kind["input_schema"]["required"] == ["text"]
    assert kind["defaults"] == {"provider": "alpha", "model": "a1", "max_attempts": 3}


async def test_an_operator_sees_all_tenants_and_makes_jobs_of_its_own(desk: Desk) -> None:
    made = (await desk.post(WORK, "foreign", desk.other_key)).json()["job_id"]
    assert (await desk.get(f"/api/ai/jobs/{made}", desk.operator_key)).status_code == 200
    listed = (await desk.get("/api/ai/jobs?limit=200", desk.operator_key)).json()["jobs"]
    assert made in {job["job_id"] for job in listed}
    own = (await desk.post(WORK, "own", desk.operator_key)).json()["job_id"]
    assert (await desk.get(f"/api/ai/jobs/{own}")).status_code == 200


async def test_a_kind_for_which_nobody_has_a_provider_is_listed_and_refused(desk: Desk) -> None:
    await register_kind(
        desk.database, replace(NOTE, kind="ask", default_provider=None, default_model=None, choices={})
    )
    try:
        answer = await desk.post({"kind": "ask", "input": {"text": "x"}}, "ask")
        assert problem(answer) == (422, "unknown_provider")
        kinds = (await desk.get("/api/ai/kinds")).json()["kinds"]
        assert {kind["kind"]: kind["available"] for kind in kinds} == {"ask": False, "note": True}
    finally:
        await desk.database.execute("DELETE FROM outlive.job_kinds WHERE kind = 'ask'")


async def test_a_kind_is_known_the_moment_a_worker_has_registered_it(desk: Desk) -> None:
    """A question about a name that is not known is put to the table each time."""
    body = {"kind": "new", "input": {"text": "x"}}
    assert problem(await desk.post(body, "new")) == (422, "unknown_kind")
    await register_kind(desk.database, replace(NOTE, kind="new"))
    try:
        assert (await desk.post(body, "new")).status_code == 202
    finally:
        await desk.database.execute("DELETE FROM outlive.job_kinds WHERE kind = 'new'")


async def test_a_schema_that_is_none_hides_its_kind_and_no_other(desk: Desk) -> None:
    for schema in ({"type": "nonsense"}, {"$ref": "https://elsewhere.example/schema"}):
        await register_kind(desk.database, replace(NOTE, kind="broken", version=2, input_schema=schema))
        try:
            answer = await desk.post({"kind": "broken", "input": {"text": "x"}}, "broken")
            assert problem(answer) == (422, "unknown_kind")
            assert (await desk.post(WORK, str(uuid4()))).status_code == 202
        finally:
            await desk.database.execute("DELETE FROM outlive.job_kinds WHERE kind = 'broken'")
