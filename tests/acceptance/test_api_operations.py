"""The process: how it starts, waits, refuses, loses its database, keeps quiet and ends."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from schema.database import Database, DatabaseSettings
from schema.kinds import register_kind
from schema.migrate import migrate
from tests.acceptance.conftest import NOTE, problem
from tests.support.api import Api, call_api, make_key
from tests.support.databases import make_migrated
from tests.support.postgres import DurablePostgres
from tests.support.processes import run
from tests.support.servers import Gateway, environment_for, start_gateway
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    async with Database.open(DatabaseSettings(url, url, 2)) as database:
        yield database


async def with_note(url: str) -> str:
    """An API key, in a database that knows the kind."""
    async with opened(url) as database:
        await register_kind(database, NOTE)
    return await make_key(url)


async def test_alive_and_ready(database_url: str) -> None:
    async with start_gateway(database_url) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
        for path in ("/livez", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert (await client.get("/readyz")).json() == {"ready": True, "database": "up", "listen": "up"}
        assert (await client.head("/readyz")).status_code == 200


async def test_without_tables_it_waits_unready_and_says_so(empty_database_url: str) -> None:
    environment = environment_for(empty_database_url, {"OUTLIVE_PORT": "0"})
    async with Gateway("gateway", environment) as gateway:
        await gateway.launch()
        await gateway.logs("run `python -m schema migrate`")
        url = gateway.log_text().partition("outlive gateway listening on ")[2].split()[0]
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/livez")).status_code == 200
            for path in ("/readyz", "/api/ai/jobs"):
                answer = await client.get(path, headers={"Authorization": "Bearer x"})
                assert problem(answer) == (503, "database_unavailable")
                assert 1 <= int(answer.headers["retry-after"]) <= 10
            await migrate(empty_database_url)

            async def ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await until(ready)


async def test_tables_of_a_newer_version_are_refused(database_url: str) -> None:
    async with opened(database_url) as database:
        await database.execute(
            "INSERT INTO outlive.migrations (number, name, sha256) SELECT 999, 'later', repeat('0', 64)"
        )
    async with run("gateway", environment_for(database_url, {"OUTLIVE_PORT": "0"})) as gateway:
        assert await gateway.wait() == 1
        assert "start a newer version of it" in gateway.log_text()
        assert "Traceback" not in gateway.log_text()


async def test_a_port_that_is_taken_is_one_sentence(database_url: str) -> None:
    async with start_gateway(database_url) as first:
        port = first.url.rpartition(":")[2]
        async with run("gateway", environment_for(database_url, {"OUTLIVE_PORT": port})) as second:
            assert await second.wait() == 1
            assert "choose another OUTLIVE_PORT" in second.log_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_soon_and_well(database_url: str, number: signal.Signals) -> None:
    async with start_gateway(database_url) as gateway, httpx.AsyncClient() as idle:
        await idle.get(f"{gateway.url}/livez")
        began = time.monotonic()
        gateway.send(number)
        assert await gateway.wait() == 0
        assert time.monotonic() - began < 5


async def test_a_request_that_never_ends_does_not_keep_it_past_its_grace(database_url: str) -> None:
    key = await make_key(database_url)
    async with start_gateway(database_url, {"OUTLIVE_GRACE_SECONDS": "3"}) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            head = f"POST /api/ai/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: k\r\n"
            await stream.send(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode())
            # Its turn comes after the request above has been taken up.
            async with httpx.AsyncClient() as client:
                await client.get(f"{gateway.url}/livez")
            began = time.monotonic()
            gateway.send(signal.SIGTERM)
            await gateway.wait()
            assert time.monotonic() - began < 4


async def test_without_its_database_it_says_503_and_recovers(durable_postgres: DurablePostgres) -> None:
    url = await make_migrated(durable_postgres.url)
    key = await with_note(url)
    async with start_gateway(url) as gateway, call_api(gateway.url, key) as api:

        async def readiness() -> dict[str, Any]:
            answer = await api.client.get("/readyz")
            # Ready all the same: taking every gateway out of service would help nobody.
            assert answer.status_code == 200
            body: dict[str, Any] = answer.json()
            return body

        async def is_up() -> bool:
            return await readiness() == {"ready": True, "database": "up", "listen": "up"}

        async def is_down() -> bool:
            return await readiness() == {"ready": True, "database": "down", "listen": "down"}

        await api.create("note", {"text": "before"})
        await durable_postgres.stop()
        answer = await api.client.post("/api/ai/jobs", json=WORK, headers={"Idempotency-Key": "while away"})
        assert problem(answer) == (503, "database_unavailable")
        assert 1 <= int(answer.headers["retry-after"]) <= 10
        await until(is_down)
        await durable_postgres.start_again()
        await until(is_up, 20)
        job = await api.create("note", WORK["input"], idempotency_key="while away")
        assert job["status"] == "queued"


CANARY = "canary-that-nobody-may-read"


async def test_no_log_at_any_level_holds_a_key_a_token_or_a_text(database_url: str) -> None:
    key = await with_note(database_url)
    environment = environment_for(database_url, {"OUTLIVE_PORT": "0", "PYTHONASYNCIODEBUG": "1"})
    async with Gateway("tests.acceptance.debug_gateway", environment) as gateway:
        await gateway.start()
        async with call_api(gateway.url, key) as api:
            job = await api.create("note", {"text": CANARY}, metadata={CANARY: CANARY}, idempotency_key=CANARY)
            await provoke(api, str(job["events_url"]))
            async with opened(database_url) as database:
                await database.execute("ALTER TABLE outlive.job_contents RENAME TO elsewhere")
            broken = await post(api, f'{{"kind": "note", "input": {{"text": "{CANARY}"}}}}')
            assert problem(broken) == (500, "internal")
            assert CANARY not in broken.text
        assert await gateway.stop() == 0
        log = gateway.log_text()
    assert "request failed" in log
    assert "gateway/job_creation.py" in log
    assert "every logger writes" in log
    token = str(job["events_url"]).partition("?token=")[2]
    for secret in (CANARY, key, token, token.rpartition(".")[2]):
        assert secret not in log


async def provoke(api: Api, events_url: str) -> None:
    """Bring the word, a key and a token to every place from which one might log them."""
    for headers in ({"Authorization": f"Bearer {CANARY}"}, {"Authorization": f"Bearer {CANARY}.a.b"}, {}):
        await api.client.get(f"/api/ai/jobs?token={CANARY}", headers=headers)
    await api.client.get(events_url, headers={"Accept": "application/json", "Cookie": f"x={CANARY}"})
    for body in (f'{{"{CANARY}": 1}}', f'{{"{CANARY}"', f'{{"kind": "{CANARY}", "input": {{"{CANARY}": 1}}}}'):
        assert (await post(api, body)).status_code in {400, 422}


async def post(api: Api, body: str) -> httpx.Response:
    headers = {"Idempotency-Key": f"{CANARY} 2", "Content-Type": "application/json"}
    return await api.client.post("/api/ai/jobs", content=body, headers=headers)
