"""Money over HTTP: what is reserved, what is refused, who sees it. docs/protocol.md 6."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import anyio
import httpx
import orjson
import pytest

from schema.endings import Ending, end_run
from schema.kinds import JobKind, register_kind
from schema.runs import AttemptOutcome, Failure
from schema.tenants import Terms, add_key, add_tenant
from tests.acceptance.conftest import NOTE, Desk, problem
from tests.support.jobs import claim_one
from tests.support.money import agrees, called
from tests.support.servers import start_gateway

pytestmark = pytest.mark.anyio

INPUT = {"text": "one"}
_ALPHA = {"alpha": {"a1": {"input": "1", "output": "2", "context": 10_000}}}
KINDS: list[JobKind] = [
    replace(NOTE, kind="priced", prices=_ALPHA, calls=1),
    replace(NOTE, kind="priced-often", prices=_ALPHA, calls=3),
    replace(NOTE, kind="priced-unbounded", prices=_ALPHA),
    replace(NOTE, kind="open", input_schema={"type": "object"}, prices=_ALPHA, calls=1),
    replace(NOTE, kind="bounded", max_cost_usd=Decimal("0.5"), prices=_ALPHA, calls=1),
    replace(NOTE, kind="fixed", price_usd=Decimal("0.25")),
    replace(NOTE, kind="free", calls_provider=False, default_provider=None, default_model=None, choices={}),
]


@pytest.fixture(scope="module")
async def kinds(desk: Desk) -> None:
    for kind in KINDS:
        await register_kind(desk.database, kind)


@pytest.fixture
async def key(desk: Desk, kinds: None) -> AsyncIterator[str]:
    """Of a tenant of its own with a quota of 1 dollar; afterwards the books have to agree."""
    terms = Terms(quota_usd=Decimal(1), quota_period="total")
    yield await add_key(desk.database, await add_tenant(desk.database, f"t{uuid4().hex}", terms))
    await agrees(desk.database)


async def post(desk: Desk, key: str, kind: str = "note", idempotency_key: str = "", **fields: Any) -> httpx.Response:
    body = {"kind": kind, "input": INPUT, **fields}
    return await desk.post(body, idempotency_key or uuid4().hex, key)


async def reserved(desk: Desk, key: str, kind: str, **fields: Any) -> str | None:
    answer = await post(desk, key, kind, **fields)
    assert answer.status_code == 202, answer.text
    usd: str | None = answer.json()["cost"]["reserved_usd"]
    return usd


async def test_what_the_quota_does_not_allow_is_402_and_leaves_nothing(desk: Desk, key: str) -> None:
    assert await reserved(desk, key, "note", max_cost_usd=0.75) == "0.75"
    before = await desk.rows()
    refused = await post(desk, key, max_cost_usd="0.250000001", idempotency_key="kept")
    assert problem(refused) == (402, "quota_exceeded")
    assert await desk.rows() == before
    assert (await post(desk, key, max_cost_usd="0.25", idempotency_key="kept")).status_code == 202


async def test_a_job_that_nobody_can_bound_is_422_under_a_quota_only(desk: Desk, key: str) -> None:
    assert problem(await post(desk, key)) == (422, "cost_limit_required")
    assert problem(await post(desk, key, "priced-unbounded")) == (422, "cost_limit_required")
    assert await reserved(desk, key, "priced-unbounded", max_cost_usd=1) == "1"
    assert await reserved(desk, desk.key, "note") is None


async def test_what_costs_nothing_needs_no_quota(desk: Desk, key: str) -> None:
    assert await reserved(desk, key, "note", max_cost_usd=1) == "1"
    assert await reserved(desk, key, "free") == "0"
    assert problem(await post(desk, key, "free", max_cost_usd="0.01")) == (402, "quota_exceeded")


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"0.5", "0.5"),
        (b'"0.5"', "0.5"),
        (b'"0.500000000"', "0.5"),
        (b"1", "1"),
        (b"1.0", "1"),
        (b"1e-9", "0.000000001"),
        (b'"0.000000001"', "0.000000001"),
        (b"0.123456789", "0.123456789"),
        (b"1e4", "10000"),
        (b'"10000"', "10000"),
        (b"9999.999999999", "9999.999999999"),
        (b"null", None),
    ],
)
async def test_forms_of_max_cost_usd(desk: Desk, kinds: None, sent: bytes, shown: str | None) -> None:
    body = b'{"kind": "note", "input": {"text": "one"}, "max_cost_usd": %b}' % sent
    answer = await desk.post(body, uuid4().hex)
    assert (answer.status_code, answer.json()["cost"]["reserved_usd"]) == (202, shown)


async def test_what_is_reserved_where_the_request_says_nothing(desk: Desk, key: str) -> None:
    """The kind's default, else its fixed price, else the worst case: input bytes and 2,000, and all that fits out."""
    assert await reserved(desk, key, "bounded") == "0.5"
    assert await reserved(desk, key, "fixed") == "0.25"
    tokens = len(orjson.dumps(INPUT)) + 2_000
    one_call = Decimal(tokens * 1 + 10_000 * 2) / 1_000_000
    assert await reserved(desk, key, "priced") == str(one_call)
    assert await reserved(desk, key, "priced-often") == str(3 * one_call)
    assert await reserved(desk, key, "bounded", max_cost_usd="0.01") == "0.01"


async def test_a_wish_under_the_fixed_price_is_refused(desk: Desk, key: str) -> None:
    """Nobody is charged more than was reserved, so it would be had for less than its price."""
    answer = await post(desk, key, "fixed", max_cost_usd="0.249999999")
    assert problem(answer) == (422, "invalid_input")
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/max_cost_usd"]
    assert await reserved(desk, key, "fixed", max_cost_usd="0.25") == "0.25"


@pytest.mark.parametrize(
    ("wish", "output_tokens"),
    [(100, 100), (0, 10_000), (1e300, 10_000), (-1_000_000, 10_000), (True, 10_000), ("9", 10_000), (10.5, 11)],
)
async def test_no_input_makes_a_worst_case_less_than_it_is(
    desk: Desk, key: str, wish: Any, output_tokens: int
) -> None:
    """A schema of a team's own may let anything stand there."""
    value = {"max_output_tokens": wish}
    answer = await desk.post({"kind": "open", "input": value}, uuid4().hex, key)
    assert answer.status_code == 202, answer.text
    dollars = Decimal(len(orjson.dumps(value)) + 2_000 + output_tokens * 2) / 1_000_000
    assert Decimal(answer.json()["cost"]["reserved_usd"]) == dollars


async def test_a_replay_comes_before_the_quota(desk: Desk, key: str) -> None:
    first = await post(desk, key, max_cost_usd=1, idempotency_key="all of it")
    again = await post(desk, key, max_cost_usd=1, idempotency_key="all of it")
    assert (again.status_code, again.json()["job_id"]) == (200, first.json()["job_id"])
    assert problem(await post(desk, key, max_cost_usd=2, idempotency_key="all of it"))[1] == "idempotency_key_reused"
    assert problem(await post(desk, key, max_cost_usd=1)) == (402, "quota_exceeded")


async def test_twins_at_two_gateways_make_one_job_of_what_is_left(desk: Desk, key: str) -> None:
    """Whoever loses the race finds the quota used up, by itself."""
    statuses: list[int] = []
    body = {"kind": "note", "input": INPUT, "max_cost_usd": 1}
    async with (
        start_gateway(desk.database.settings.url) as second,
        httpx.AsyncClient(base_url=second.url, timeout=30, trust_env=False) as there,
    ):

        async def one(client: httpx.AsyncClient) -> None:
            headers = {**desk.auth(key), "Idempotency-Key": "twins"}
            statuses.append((await client.post("/api/ai/jobs", json=body, headers=headers)).status_code)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, (desk.client, there)[number % 2])
    assert sorted(statuses) == [200] * 19 + [202]


async def test_a_retry_reserves_anew(desk: Desk, key: str) -> None:
    old = (await post(desk, key, max_cost_usd=1)).json()["job_id"]
    await desk.client.post(f"/api/ai/jobs/{old}/cancel", headers=desk.auth(key))

    async def retry() -> httpx.Response:
        headers = {**desk.auth(key), "Idempotency-Key": uuid4().hex}
        return await desk.client.post(f"/api/ai/jobs/{old}/retry", headers=headers)

    made = await retry()
    assert (made.status_code, made.json()["cost"]["reserved_usd"]) == (202, "1")
    assert problem(await retry()) == (402, "quota_exceeded")
    shown = (await desk.get(f"/api/ai/jobs/{old}", key)).json()["cost"]
    assert (shown["reserved_usd"], shown["charged_usd"]) == ("1", "0")


async def test_the_cost_of_a_job_in_each_of_its_states(desk: Desk, key: str) -> None:
    kind = replace(KINDS[-1], kind=f"k{uuid4().hex}")
    await register_kind(desk.database, kind)

    async def cost(job_id: object) -> dict[str, Any]:
        one = (await desk.get(f"/api/ai/jobs/{job_id}", key)).json()["cost"]
        (listed,) = [
            each for each in (await desk.get("/api/ai/jobs", key)).json()["jobs"] if each["job_id"] == job_id
        ]
        assert listed["cost"] == one
        return dict(one)

    ends = {"succeeded": "0.1", "failed": "0", "cancelled": "0"}
    for status, charged in ends.items():
        job_id = (await post(desk, key, kind.kind, max_cost_usd="0.2")).json()["job_id"]
        waiting = {"reserved_usd": "0.2", "charged_usd": None, "provider_usd": None, "complete": True}
        assert await cost(job_id) == waiting
        run = await claim_one(desk.database, kind.kind)
        assert run.lease.job_id == UUID(job_id)
        await called(desk.database, run.lease, 1, "0.1")
        assert await cost(job_id) == waiting | {"provider_usd": "0.1"}
        await called(desk.database, run.lease, 2, None, outcome="unknown")
        assert await cost(job_id) == waiting | {"provider_usd": "0.1", "complete": False}
        failure = Failure("c", "permanent", "Why; what to do.")
        ending = {
            "succeeded": Ending.succeeded(run.lease, run.last_seq, {}),
            "failed": Ending.failed(run.lease, run.last_seq, failure, AttemptOutcome.FAILED),
            "cancelled": Ending.cancelled(run.lease, run.last_seq, AttemptOutcome.CANCELLED),
        }[status]
        assert await end_run(desk.database, ending)
        assert await cost(job_id) == {
            "reserved_usd": "0.2",
            "charged_usd": charged,
            "provider_usd": "0.1",
            "complete": False,
        }


async def test_tokens_see_no_money_of_their_tenant(desk: Desk, key: str) -> None:
    """Neither of the jobs nor, where one is refused, of the quota."""
    token = await desk.token(key, user="ann", scope=["read", "create"])
    made = await post(desk, token, max_cost_usd=1)
    assert made.json()["cost"] is None
    assert (await desk.get(made.headers["location"], token)).json()["cost"] is None
    refused = await post(desk, token, max_cost_usd="0.31")
    assert problem(refused) == (402, "quota_exceeded")
    assert not any(digit in refused.json()["detail"] for digit in "0123456789")


async def test_kinds_tell_what_they_cost(desk: Desk, key: str) -> None:
    found = {kind["kind"]: kind for kind in (await desk.get("/api/ai/kinds", key)).json()["kinds"]}
    money = {name: (kind["price_usd"], kind["max_cost_usd"], kind["prices"]) for name, kind in found.items()}
    assert money["note"] == (None, None, {})
    assert money["fixed"] == ("0.25", None, {})
    assert money["bounded"] == (None, "0.5", _ALPHA)
