"""The HTTP API as a test calls it: a tenant, a key, jobs and their ends."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx

from schema.database import Database, DatabaseSettings
from schema.tenants import add_key, add_tenant
from tests.support.waiting import until

Job = dict[str, Any]

ENDED = frozenset({"succeeded", "failed", "cancelled"})


async def make_key(database_url: str, tenant: str = "acme") -> str:
    """A new tenant of that name, and an API key of it."""
    settings = DatabaseSettings(database_url, database_url, pool_size=1)
    async with Database.open(settings) as database:
        return await add_key(database, await add_tenant(database, tenant))


class Api:
    """One caller with one API key. Each method raises httpx.HTTPStatusError for an answer from 400 on.

    `client` is for what is not spelled out here; its addresses are relative to the gateway's.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def create(
        self, kind: str, input: dict[str, Any], *, idempotency_key: str | None = None, **fields: Any
    ) -> Job:
        """The job object of a 202, or of a 200 for a key that was used before."""
        answer = await self.client.post(
            "/api/ai/jobs",
            json={"kind": kind, "input": input, **fields},
            headers={"Idempotency-Key": idempotency_key or uuid.uuid4().hex},
        )
        return _json(answer)

    async def create_soon(self, kind: str, input: dict[str, Any], timeout_s: float = 30.0, **fields: Any) -> Job:
        """Like `create`, once the first worker has registered the kind; it may just be starting."""
        key = fields.pop("idempotency_key", None) or uuid.uuid4().hex

        async def created() -> Job | None:
            try:
                return await self.create(kind, input, idempotency_key=key, **fields)
            except httpx.HTTPStatusError as error:
                if _code(error.response) != "unknown_kind":
                    raise
            return None

        job = await until(created, timeout_s, what=f"a worker that registers {kind}")
        assert job is not None
        return job

    async def get(self, job_id: str) -> Job:
        return _json(await self.client.get(f"/api/ai/jobs/{job_id}"))

    async def ended(self, job_id: str, timeout_s: float = 30.0) -> Job:
        """The job object once the job has ended, in whatever way."""

        async def end() -> Job | None:
            job = await self.get(job_id)
            return job if job["status"] in ENDED else None

        job = await until(end, timeout_s, what=f"the end of job {job_id}")
        assert job is not None
        return job

    def events_url(self, job: Job) -> str:
        """Absolute, with a token that lets anybody read this job's events."""
        return urljoin(str(self.client.base_url), str(job["events_url"]))


@asynccontextmanager
async def call_api(base_url: str, key: str) -> AsyncIterator[Api]:
    """An Api over one connection pool, closed with the block."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=30, trust_env=False) as client:
        yield Api(client)


def _code(answer: httpx.Response) -> str | None:
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    return answer.json().get("code") if is_problem else None


def _json(answer: httpx.Response) -> Job:
    if answer.is_error:
        raise httpx.HTTPStatusError(
            f"{answer.status_code}: {answer.text[:2000]}", request=answer.request, response=answer
        )
    body: Job = answer.json()
    return body
