"""A client of the HTTP API that costs little: a kept connection for what it posts, a new one for each stream."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import orjson

from tests.bench.readers import open_readers


class Caller:
    """Creates jobs and follows each to its end."""

    def __init__(self, base_url: str, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._base_url = base_url
        self._key = key
        self._reader = reader
        self._writer = writer

    async def run(self, kind: str, input: dict[str, Any]) -> None:
        """POST a job and read its stream; returns when the terminal event is here."""
        job = await self._create(orjson.dumps({"kind": kind, "input": input}))
        ((reader, arrivals),) = await open_readers([urljoin(self._base_url, job["events_url"])])
        await reader.ended
        if not arrivals.finished:
            raise RuntimeError(f"the stream of {job['job_id']} ended before its job")

    async def _create(self, body: bytes) -> dict[str, Any]:
        head = (
            f"POST /api/ai/jobs HTTP/1.1\r\nHost: {urlsplit(self._base_url).netloc}\r\n"
            f"Authorization: Bearer {self._key}\r\nIdempotency-Key: {uuid.uuid4().hex}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        status, length = _status_and_length(await self._reader.readuntil(b"\r\n\r\n"))
        answer = await self._reader.readexactly(length)
        if status != 202:
            raise RuntimeError(f"{status} where a job should have been made: {answer[:500]!r}")
        job: dict[str, Any] = orjson.loads(answer)
        return job


def _status_and_length(head: bytes) -> tuple[int, int]:
    first, *fields = head.decode("latin-1").split("\r\n")
    lengths = [field.partition(":")[2] for field in fields if field.lower().startswith("content-length:")]
    return int(first.split()[1]), int(lengths[0])


@asynccontextmanager
async def open_caller(base_url: str, key: str) -> AsyncIterator[Caller]:
    """Connected for the block."""
    parts = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield Caller(base_url, key, reader, writer)
    finally:
        writer.close()
