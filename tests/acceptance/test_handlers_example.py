"""The kind of docs/examples as docs/handlers.md says to run it: a worker with `--handlers` beside a gateway."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from tests.support.api import Api, call_api, make_key
from tests.support.processes import ServerProcess, run
from tests.support.servers import environment_for, start_gateway
from tests.support.sse_client import open_stream, read_to_end

pytestmark = pytest.mark.anyio

EXAMPLE = "docs/examples/word_count.py"
TEXT = "One two three.\n\nFour five.\n\nSix."
COUNTED = "Paragraph 1: 3 words\nParagraph 2: 2 words\nParagraph 3: 1 word\n"
LEASE_S = 1


@asynccontextmanager
async def own_worker(database_url: str, tally: Path) -> AsyncIterator[ServerProcess]:
    settings = {"WORD_COUNT_DB": str(tally), "OUTLIVE_LEASE_SECONDS": str(LEASE_S)}
    async with run("worker", environment_for(database_url, settings), "--handlers", EXAMPLE) as worker:
        await worker.logs("worker ready")
        yield worker


@asynccontextmanager
async def caller(database_url: str) -> AsyncIterator[Api]:
    key = await make_key(database_url)
    async with start_gateway(database_url) as gateway, call_api(gateway.url, key) as api:
        yield api


def booked(tally: Path, job_id: str) -> list[tuple[str, int]]:
    """What stands in the example's own table, step by step."""
    with closing(sqlite3.connect(tally)) as database:
        rows = database.execute("SELECT step_key, words FROM counts ORDER BY step_key").fetchall()
    assert all(key.startswith(f"{job_id}:paragraph-") for key, _ in rows)
    return [(key.rpartition(":")[2], words) for key, words in rows]


async def test_it_counts_and_tells_how_far_it_is(database_url: str, tmp_path: Path) -> None:
    tally = tmp_path / "tally.db"
    async with caller(database_url) as api, own_worker(database_url, tally):
        job = await api.create("word_count", {"text": TEXT})
        reader = await read_to_end(api.events_url(job))
        assert reader.result == {"text": COUNTED, "words": 6}
        assert reader.text == COUNTED
        assert reader.values[-2:] == [
            {"done": 3, "total": 3, "label": ""},
            {"name": "total", "value": {"paragraphs": 3, "words": 6}},
        ]
        with pytest.raises(httpx.HTTPStatusError, match="/input/text"):
            await api.create("word_count", {"text": ""})
    assert booked(tally, job["job_id"]) == [("paragraph-1", 3), ("paragraph-2", 2), ("paragraph-3", 1)]


async def test_another_worker_goes_on_behind_the_checkpoint(database_url: str, tmp_path: Path) -> None:
    tally = tmp_path / "tally.db"
    async with caller(database_url) as api:
        async with own_worker(database_url, tally) as first:
            job = await api.create("word_count", {"text": TEXT, "pause_seconds": 2})
            async with open_stream(api.events_url(job)) as stream:
                async for event in stream:
                    if event.name == "progress" and event.data["done"] == 1:
                        break
            await first.kill()
        async with own_worker(database_url, tally):
            reader = await read_to_end(api.events_url(job))
        log = await api.client.get(f"/api/ai/jobs/{job['job_id']}/events", headers={"Accept": "application/json"})
    begun, taken_over = [event["data"] for event in log.json()["events"] if event["event"] == "attempt"]
    assert begun["resumes_after"] == 0
    assert taken_over["resumes_after"] > 0
    assert (reader.attempt, reader.text) == (2, COUNTED)
    assert len(booked(tally, job["job_id"])) == 3


async def test_a_cancel_reaches_it(database_url: str, tmp_path: Path) -> None:
    async with caller(database_url) as api, own_worker(database_url, tmp_path / "tally.db"):
        job = await api.create("word_count", {"text": TEXT, "pause_seconds": 10})
        async with open_stream(api.events_url(job)) as stream:
            async for event in stream:
                if event.name == "chunk":
                    break
        answer = await api.client.post(f"/api/ai/jobs/{job['job_id']}/cancel")
        assert answer.status_code == 202
        reader = await read_to_end(api.events_url(job))
    assert reader.outcome is not None
    assert reader.outcome.name == "cancelled"
    assert reader.text == "Paragraph 1: 3 words\n"
