"""One gateway for a whole file of tests, where they only ask it things and do not stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest

from schema.database import Database, DatabaseSettings
from schema.kinds import JobKind, register_kind
from schema.tenants import add_key, add_tenant, find_tenant
from tests.support.databases import Databases
from tests.support.demo import Demos
from tests.support.servers import start_gateway

SHOP = "https://shop.example"

NOTE = JobKind(
    kind="note",
    version=1,
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 1_000_000}, "any": True},
        "required": ["text"],
        "additionalProperties": False,
    },
    repeat="safe",
    time_limit_s=600,
    calls_provider=True,
    default_provider="alpha",
    default_model="a1",
    choices={"alpha": ["a1", "a2"], "beta": [], "gamma": ["g1"]},
)


@dataclass(frozen=True)
class Desk:
    """A gateway with no worker, two tenants and their keys; `client` sends no credential of its own."""

    client: httpx.AsyncClient
    database: Database
    key: str
    other_key: str
    operator_key: str

    def auth(self, credential: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {credential or self.key}"}

    async def post(
        self, body: object, idempotency_key: str = "k", credential: str | None = None, **headers: str
    ) -> httpx.Response:
        """A job from a JSON value, or from bytes as they are."""
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        base = {**self.auth(credential), "Idempotency-Key": idempotency_key, "Content-Type": "application/json"}
        return await self.client.post("/api/ai/jobs", headers={**base, **headers}, **sent)

    async def get(self, path: str, credential: str | None = None, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={**self.auth(credential), **headers})

    async def token(self, credential: str | None = None, **fields: object) -> str:
        """One that the gateway mints."""
        answer = await self.client.post("/api/ai/tokens", json=fields, headers=self.auth(credential))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    async def rows(self) -> int:
        """How much stands in the tables that a request can write to."""
        return int(
            await self.database.fetchval(
                "SELECT (SELECT count(*) FROM outlive.ai_jobs) + (SELECT count(*) FROM outlive.job_events)"
                " + (SELECT count(*) FROM outlive.job_contents)"
            )
        )


@pytest.fixture
def demos() -> Iterator[Demos]:
    """Runs the demo in a folder of its own; whatever the test leaves running ends with it."""
    with Demos() as made:
        yield made


@pytest.fixture(scope="module")
async def desk(databases: Databases, anyio_backend: object) -> AsyncIterator[Desk]:
    """Made once a file: its tests leave it running and use keys of their own."""
    url = databases.create()
    try:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database.open(DatabaseSettings(url, url, 2)))
            key, other_key = [
                await add_key(database, await add_tenant(database, name)) for name in ("acme", "globex")
            ]
            operator = await add_key(database, await find_tenant(database, "acme"), is_operator=True)
            await register_kind(database, NOTE)
            gateway = await stack.enter_async_context(start_gateway(url, {"OUTLIVE_ORIGINS": SHOP}))
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=gateway.url, timeout=30, trust_env=False)
            )
            yield Desk(client, database, key, other_key, operator)
    finally:
        databases.drop(url)


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, which has to be a whole problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert {"type", "title", "status", "detail", "code"} <= set(body)
    assert body["status"] == answer.status_code
    return answer.status_code, body["code"]
