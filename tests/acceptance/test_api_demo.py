"""What OUTLIVE_DEMO adds: the page, the documents, a user for each browser; and only for this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest

from schema.database import Database, DatabaseSettings
from schema.kinds import register_kind
from tests.acceptance.conftest import NOTE, problem
from tests.support.databases import Databases
from tests.support.processes import run
from tests.support.servers import SECRET, environment_for, start_gateway

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}


@pytest.fixture(scope="module")
async def demo(databases: Databases, anyio_backend: object) -> AsyncIterator[str]:
    url = databases.create()
    try:
        async with Database.open(DatabaseSettings(url, url, 2)) as database:
            await register_kind(database, NOTE)
        async with start_gateway(url, {"OUTLIVE_DEMO": "1"}) as gateway:
            yield gateway.url
    finally:
        databases.drop(url)


@asynccontextmanager
async def visit(demo: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of its own, with its own cookies."""
    async with httpx.AsyncClient(base_url=demo, trust_env=False) as browser:
        yield browser


@pytest.fixture
async def browser(demo: str) -> AsyncIterator[httpx.AsyncClient]:
    async with visit(demo) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "media_type", "file"),
    [
        ("/", "text/html; charset=utf-8", "index.html"),
        ("/index.html", "text/html; charset=utf-8", "index.html"),
        ("/outlive.js", "text/javascript; charset=utf-8", "outlive.js"),
        ("/icon.svg", "image/svg+xml", "icon.svg"),
    ],
)
async def test_the_page_is_served_strictly(browser: httpx.AsyncClient, path: str, media_type: str, file: str) -> None:
    answer = await browser.get(path)
    assert answer.content == (ROOT / "web-demo" / file).read_bytes()
    assert answer.headers["content-type"] == media_type
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert not [rule for rule in policy if "unsafe" in rule]
    unchanged = await browser.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        *("/__main__.py", "/crew.py", "/nothing.js", "/..%2fpyproject.toml", "/%2e%2e/LICENSE", "/.hidden.js"),
        *("/a%00.js", f"/{'a' * 300}.js"),
    ],
)
async def test_nothing_else_is_served(browser: httpx.AsyncClient, path: str) -> None:
    assert problem(await browser.get(path)) == (404, "not_found")


async def test_documents(browser: httpx.AsyncClient) -> None:
    listed = (await browser.get("/demo/documents")).json()
    names = [document["name"] for document in listed]
    assert "LICENSE" in names
    for document in listed:
        answer = await browser.get(f"/demo/documents/{document['name']}")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert len(answer.text) == document["characters"]
        assert document["title"]
    for name in ("pyproject.toml", "..%2fpyproject.toml", "docs%2f..%2fLICENSE"):
        assert problem(await browser.get(f"/demo/documents/{name}")) == (404, "not_found")


async def test_each_browser_has_a_user_of_its_own(demo: str) -> None:
    async with visit(demo) as one, visit(demo) as two:
        assert problem(await one.get("/api/ai/jobs")) == (401, "unauthorized")
        users = [(await browser.post("/demo/session")).json()["user_id"] for browser in (one, two)]
        assert users[0] != users[1]
        made = await one.post("/api/ai/jobs", json=WORK, headers={"Idempotency-Key": str(uuid4())})
        assert made.status_code == 202
        job = made.json()
        assert job["user_id"] == users[0]
        assert [each["job_id"] for each in (await one.get("/api/ai/jobs")).json()["jobs"]] == [job["job_id"]]
        assert (await two.get("/api/ai/jobs")).json()["jobs"] == []
        assert problem(await two.get(f"/api/ai/jobs/{job['job_id']}")) == (404, "not_found")


async def test_cookies_are_for_this_site_and_not_for_scripts(browser: httpx.AsyncClient) -> None:
    answer = await browser.post("/demo/session")
    cookies = answer.headers.get_list("set-cookie")
    assert [cookie.partition("=")[0] for cookie in cookies] == ["outlive_token", "outlive_demo_user"]
    for cookie in cookies:
        assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.lower().split("; "))
    assert "Max-Age=86400" in cookies[0]


async def test_a_browser_keeps_its_user_when_its_token_is_gone(browser: httpx.AsyncClient) -> None:
    first = (await browser.post("/demo/session")).json()["user_id"]
    del browser.cookies["outlive_token"]
    assert problem(await browser.get("/api/ai/jobs")) == (401, "unauthorized")
    assert (await browser.post("/demo/session")).json()["user_id"] == first
    assert (await browser.get("/api/ai/jobs")).status_code == 200


async def test_a_user_cookie_that_we_did_not_sign_counts_for_nothing(browser: httpx.AsyncClient) -> None:
    victim = (await browser.post("/demo/session")).json()["user_id"]
    later = datetime.now(UTC) + timedelta(days=1)
    for secret in ("another secret that is long enough too", SECRET[:-1] + "x"):
        forged = jwt.encode({"demo_user": victim, "exp": later}, secret, "HS256")
        answer = await browser.post("/demo/session", headers={"Cookie": f"outlive_demo_user={forged}"})
        assert answer.json()["user_id"] != victim


async def test_a_user_cookie_is_no_token(browser: httpx.AsyncClient) -> None:
    await browser.post("/demo/session")
    kept = browser.cookies["outlive_demo_user"]
    browser.cookies.clear()
    for headers in ({"Authorization": f"Bearer {kept}"}, {"Cookie": f"outlive_token={kept}"}):
        assert problem(await browser.get("/api/ai/jobs", headers=headers)) == (401, "unauthorized")


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
async def test_a_foreign_page_gets_no_session(browser: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await browser.post("/demo/session", headers=headers)
    assert problem(answer) == (403, "forbidden")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", ""]
)
@pytest.mark.parametrize("path", ["/", "/demo/session", "/api/ai/jobs", "/outlive.js"])
async def test_a_name_that_was_pointed_here_gets_nothing(browser: httpx.AsyncClient, host: str, path: str) -> None:
    method = "POST" if path == "/demo/session" else "GET"
    assert problem(await browser.request(method, path, headers={"Host": host})) == (403, "forbidden")


async def test_names_of_this_machine_are_fine_with_any_port(browser: httpx.AsyncClient) -> None:
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST"):
        assert (await browser.get("/", headers={"Host": host})).status_code == 200, host


async def test_it_refuses_a_host_that_others_reach(database_url: str) -> None:
    environment = environment_for(database_url, {"OUTLIVE_DEMO": "1", "OUTLIVE_HOST": "0.0.0.0", "OUTLIVE_PORT": "0"})
    async with run("gateway", environment) as gateway:
        assert await gateway.wait() == 2
        assert "OUTLIVE_HOST must be a loopback address" in gateway.log_text()


async def test_without_it_there_is_no_page(database_url: str) -> None:
    async with start_gateway(database_url) as gateway, visit(gateway.url) as browser:
        for method, path in (("GET", "/"), ("POST", "/demo/session"), ("GET", "/demo/documents")):
            assert problem(await browser.request(method, path)) == (404, "not_found")
