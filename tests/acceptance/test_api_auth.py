"""Who is let in, what he sees, and what a browser may not do for a foreign page."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from uuid import uuid4

import jwt
import pytest

from tests.acceptance.conftest import SHOP, Desk, problem
from tests.support.servers import SECRET

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}
DAY = 86_400


def signed(secret: str = SECRET, algorithm: str = "HS256", **claims: object) -> str:
    """A token with these claims over good ones; None takes one away."""
    good = {"tenant": "acme", "jobs": "*", "scope": ["read"], "exp": int(time.time()) + 600}
    return jwt.encode(
        {name: value for name, value in {**good, **claims}.items() if value is not None}, secret, algorithm
    )


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def job_of(desk: Desk, credential: str | None = None, **fields: object) -> str:
    return str((await desk.post({**WORK, **fields}, str(uuid4()), credential)).json()["job_id"])


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Basic abc", "Bearer outlive_wrong", "Bearer a.b.c", "Bearer " + "x" * 9000]
)
async def test_no_credential_or_a_wrong_one_is_401(desk: Desk, header: str) -> None:
    answer = await desk.client.get("/api/ai/jobs", headers={"Authorization": header} if header else {})
    assert problem(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_401_comes_before_anything_else_about_the_request(desk: Desk) -> None:
    answer = await desk.client.post("/api/ai/jobs", content=b"{", headers={"Content-Type": "text/plain"})
    assert problem(answer) == (401, "unauthorized")


async def test_a_good_token_opens(desk: Desk) -> None:
    assert (await desk.get("/api/ai/jobs", signed())).status_code == 200
    assert (await desk.get("/api/ai/jobs", signed(exp=time.time() + DAY - 1.5, extra="ignored"))).status_code == 200


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "no exp": {"exp": None},
    "exp a string": {"exp": str(int(time.time()) + 600)},
    "exp true": {"exp": True},
    "exp in the past": {"exp": int(time.time()) - 1},
    "exp beyond 24 h": {"exp": int(time.time()) + DAY + 600},
    "exp beyond time": {"exp": 10**30},
    "exp a list": {"exp": [1]},
    "exp negative": {"exp": -1},
    "no tenant": {"tenant": None},
    "tenant a number": {"tenant": 1},
    "unknown tenant": {"tenant": "nobody"},
    "no jobs": {"jobs": None},
    "jobs a string": {"jobs": "018f0000-0000-7000-8000-000000000000"},
    "jobs no ids": {"jobs": ["x"]},
    "jobs numbers": {"jobs": [1]},
    "jobs star in a list": {"jobs": ["*"]},
    "no scope": {"scope": None},
    "scope a string": {"scope": "read"},
    "scope unknown": {"scope": ["read", "all"]},
    "scope numbers": {"scope": [1]},
    "scope lists": {"scope": [["read"]]},
    "empty user": {"user": ""},
    "user a number": {"user": 1},
    "user with NUL": {"user": "a\x00"},
    "user too long": {"user": "x" * 256},
    "another secret": {"secret": "another secret that is long enough too"},
    "HS384": {"algorithm": "HS384"},
    "HS512": {"algorithm": "HS512"},
    "for others": {"aud": "others"},
    "not yet": {"nbf": int(time.time()) + 600},
}


@pytest.mark.parametrize("claims", BAD_CLAIMS.values(), ids=BAD_CLAIMS.keys())
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_a_token_that_is_malformed_is_401(desk: Desk, claims: dict[str, Any]) -> None:
    assert problem(await desk.get("/api/ai/jobs", signed(**claims))) == (401, "unauthorized")


async def test_null_for_a_user_is_no_user_and_401(desk: Desk) -> None:
    token = jwt.encode(
        {"tenant": "acme", "jobs": "*", "scope": ["read"], "exp": int(time.time()) + 60, "user": None},
        SECRET,
        "HS256",
    )
    assert problem(await desk.get("/api/ai/jobs", token)) == (401, "unauthorized")


async def test_tokens_made_by_hand_are_401(desk: Desk) -> None:
    header, claims, signature = signed().split(".")
    none = part({"alg": "none", "typ": "JWT"})
    deep = base64.urlsafe_b64encode(b"[" * 2000).rstrip(b"=").decode()
    for token in (
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{header}.{claims}.",
        f"{header}.{part({'tenant': 'acme'})}.{signature}",
        f"{deep}.{claims}.{signature}",
        f"{header}.{claims}",
        "...",
    ):
        assert problem(await desk.get("/api/ai/jobs", token)) == (401, "unauthorized"), token[:40]


async def test_a_user_sees_and_makes_only_its_own_jobs(desk: Desk) -> None:
    ann, bob = [await desk.token(user=user, scope=["read", "create"]) for user in ("ann", "bob")]
    of_ann, of_tenant = await job_of(desk, ann), await job_of(desk)
    assert (await desk.get(f"/api/ai/jobs/{of_ann}", ann)).status_code == 200
    assert (await desk.get(f"/api/ai/jobs/{of_ann}")).json()["user_id"] == "ann"
    for job_id, who in ((of_ann, bob), (of_tenant, ann)):
        assert problem(await desk.get(f"/api/ai/jobs/{job_id}", who)) == (404, "not_found")
    assert {job["user_id"] for job in (await desk.get("/api/ai/jobs", ann)).json()["jobs"]} == {"ann"}
    assert (await desk.get("/api/ai/jobs?user_id=bob", ann)).json()["jobs"] == []
    answer = await desk.post({**WORK, "user_id": "bob"}, "as bob", ann)
    assert problem(answer) == (422, "invalid_input")
    assert (await desk.post({**WORK, "user_id": "ann"}, "as ann", ann)).status_code == 202


async def test_a_list_of_jobs_bounds_every_route(desk: Desk) -> None:
    named, other = await job_of(desk), await job_of(desk)
    token = await desk.token(jobs=[named], scope=["read", "create"])
    assert (await desk.get(f"/api/ai/jobs/{named}", token)).status_code == 200
    assert problem(await desk.get(f"/api/ai/jobs/{other}", token)) == (404, "not_found")
    assert [job["job_id"] for job in (await desk.get("/api/ai/jobs", token)).json()["jobs"]] == [named]
    assert problem(await desk.post(WORK, "bounded", token)) == (403, "forbidden")


async def test_another_tenants_token_does_not_help_although_it_names_the_job(desk: Desk) -> None:
    token = await desk.token(desk.other_key, jobs=[job_id := await job_of(desk)])
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}", token)) == (404, "not_found")


async def test_a_scope_that_is_missing_is_403(desk: Desk) -> None:
    reader, creator = await desk.token(jobs="*", scope=["read"]), await desk.token(jobs="*", scope=["create"])
    job_id = await job_of(desk)
    assert problem(await desk.post(WORK, "reader", reader)) == (403, "forbidden")
    assert problem(await desk.get(f"/api/ai/jobs/{job_id}", creator)) == (403, "forbidden")
    assert problem(await desk.get("/api/ai/jobs", creator)) == (403, "forbidden")


async def test_a_key_or_a_wide_token_in_the_query_is_401(desk: Desk) -> None:
    job_id = await job_of(desk)
    narrow, all_jobs = await desk.token(jobs=[job_id]), await desk.token(jobs="*")
    more = await desk.token(jobs=[job_id], scope=["read", "cancel"])
    path = f"/api/ai/jobs/{job_id}"
    for query in (f"token={desk.key}", f"key={desk.key}", f"token={all_jobs}", f"token={more}", "token="):
        assert problem(await desk.client.get(f"{path}?{query}")) == (401, "unauthorized"), query
    for elsewhere in ("/api/ai/jobs", "/api/ai/kinds"):
        assert problem(await desk.client.get(f"{elsewhere}?token={narrow}")) == (401, "unauthorized")
    post = await desk.client.post(f"/api/ai/jobs?token={narrow}", json=WORK, headers={"Idempotency-Key": "q"})
    assert problem(post) == (401, "unauthorized")
    assert problem(await desk.client.get(f"{path}?token={narrow}&token={narrow}")) == (401, "unauthorized")
    assert (await desk.client.get(f"{path}?token={narrow}")).status_code == 200
    other = await job_of(desk)
    assert problem(await desk.client.get(f"/api/ai/jobs/{other}?token={narrow}")) == (404, "not_found")


async def test_authorization_goes_before_the_query_and_the_query_before_the_cookie(desk: Desk) -> None:
    job_id = await job_of(desk)
    path = f"/api/ai/jobs/{job_id}"
    narrow, cookie = await desk.token(jobs=[job_id]), {"Cookie": f"outlive_token={await desk.token(jobs='*')}"}
    assert (await desk.client.get(path, headers=cookie)).status_code == 200
    assert problem(await desk.client.get(f"{path}?token=x.y.z", headers=cookie)) == (401, "unauthorized")
    wrong = {**cookie, "Authorization": "Bearer x.y.z"}
    assert problem(await desk.client.get(f"{path}?token={narrow}", headers=wrong)) == (401, "unauthorized")
    assert (await desk.client.get(f"{path}?token=x.y.z", headers=desk.auth())).status_code == 200


async def test_an_api_key_in_the_cookie_is_401(desk: Desk) -> None:
    answer = await desk.client.get("/api/ai/jobs", headers={"Cookie": f"outlive_token={desk.key}"})
    assert problem(answer) == (401, "unauthorized")


FOREIGN: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_foreign_page_cannot_use_the_cookie(desk: Desk, headers: dict[str, str]) -> None:
    before = await desk.rows()
    token = await desk.token(user="ann", scope=["read", "create"])
    sent = {"Cookie": f"outlive_token={token}", "Idempotency-Key": "foreign", **headers}
    job_id = str(uuid4())
    assert problem(await desk.client.post("/api/ai/jobs", json=WORK, headers=sent)) == (403, "forbidden")
    for path in ("/api/ai/jobs", f"/api/ai/jobs/{job_id}/events"):
        assert problem(await desk.client.get(path, headers=sent)) == (403, "forbidden")
    assert await desk.rows() == before
    with_header = {**headers, **desk.auth(token)}
    assert (await desk.client.get("/api/ai/jobs", headers=with_header)).status_code == 200


async def test_our_own_page_and_a_named_one_can(desk: Desk) -> None:
    cookie = {"Cookie": f"outlive_token={await desk.token(user='ann')}"}
    own = str(desk.client.base_url).rstrip("/")
    for headers in (
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": own, "Sec-Fetch-Site": "same-origin"},
        {"Origin": own},
        {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"},
    ):
        answer = await desk.client.get("/api/ai/jobs", headers={**cookie, **headers})
        assert answer.status_code == 200, headers


async def test_tokens_are_minted_as_asked(desk: Desk) -> None:
    job_id = await job_of(desk)
    answer = await desk.client.post(
        "/api/ai/tokens",
        json={"user": "ann", "jobs": [job_id], "scope": ["read", "cancel"], "ttl_seconds": 120},
        headers=desk.auth(),
    )
    claims = jwt.decode(answer.json()["token"], SECRET, algorithms=["HS256"])
    assert (claims["tenant"], claims["user"], claims["jobs"]) == ("acme", "ann", [job_id])
    assert set(claims["scope"]) == {"read", "cancel"}
    assert 115 < claims["exp"] - time.time() <= 120
    assert answer.json()["expires_at"].startswith(time.strftime("%Y-%m-%dT%H:", time.gmtime(claims["exp"])))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"jobs": []},
        {"jobs": "all"},
        {"jobs": ["x"]},
        {"jobs": "*", "scope": "read"},
        {"jobs": "*", "scope": []},
        {"jobs": "*", "scope": ["everything"]},
        {"jobs": "*", "ttl_seconds": 0},
        {"jobs": "*", "ttl_seconds": DAY + 1},
        {"jobs": "*", "ttl_seconds": "60"},
        {"jobs": "*", "user": ""},
        {"jobs": "*", "user": 1},
        {"jobs": "*", "tenant": "globex"},
        [],
    ],
)
async def test_a_wish_for_a_token_that_is_wrong_is_422(desk: Desk, body: object) -> None:
    answer = await desk.client.post("/api/ai/tokens", json=body, headers=desk.auth())
    assert problem(answer) == (422, "invalid_input")


async def test_a_token_mints_no_tokens(desk: Desk) -> None:
    token = await desk.token(jobs="*", scope=["read", "create", "cancel"])
    answer = await desk.client.post("/api/ai/tokens", json={"jobs": "*"}, headers=desk.auth(token))
    assert problem(answer) == (403, "forbidden")


async def test_a_revoked_key_is_401_at_once(desk: Desk) -> None:
    from schema.tenants import add_key, find_tenant, list_keys, revoke_key

    tenant = await find_tenant(desk.database, "globex")
    key = await add_key(desk.database, tenant, "to revoke")
    assert (await desk.get("/api/ai/jobs", key)).status_code == 200
    (kept,) = [each for each in await list_keys(desk.database, tenant) if each.label == "to revoke"]
    await revoke_key(desk.database, str(kept.id))
    assert problem(await desk.get("/api/ai/jobs", key)) == (401, "unauthorized")


async def test_cors_for_a_named_origin_on_answers_and_errors(desk: Desk) -> None:
    for path in ("/api/ai/jobs", "/api/ai/nothing", "/livez"):
        headers = (await desk.get(path, Origin=SHOP)).headers
        assert headers["access-control-allow-origin"] == SHOP
        assert headers["access-control-allow-credentials"] == "true"
        assert {"Location", "Retry-After"} <= set(headers["access-control-expose-headers"].split(", "))
        assert "Origin" in headers["vary"]


async def test_cors_says_nothing_to_others(desk: Desk) -> None:
    for origin in ("https://evil.example", "https://shop.example.evil.example", f"{SHOP}:443", "null"):
        headers = (await desk.get("/api/ai/jobs", Origin=origin)).headers
        assert not [name for name in headers if name.startswith("access-control")]
        assert "Origin" in headers["vary"]


async def test_preflight(desk: Desk) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "idempotency-key"}
    answer = await desk.client.options("/api/ai/jobs", headers={**asked, "Origin": SHOP})
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == SHOP
    allowed = set(answer.headers["access-control-allow-headers"].lower().split(", "))
    assert {"authorization", "content-type", "idempotency-key", "last-event-id", "cache-control"} <= allowed
    assert "POST" in answer.headers["access-control-allow-methods"]
    refused = await desk.client.options("/api/ai/jobs", headers={**asked, "Origin": "https://evil.example"})
    assert problem(refused) == (403, "forbidden")
    assert "access-control-allow-origin" not in refused.headers
