"""`chat` through llama.cpp: nothing here is scripted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from local_model.server import PYTHON, running, table
from tests.faults.house import open_house, says
from tests.support.servers import start_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.llm, pytest.mark.timeout(180)]

TRIES = 3
CANCEL_SECONDS = 1.0


@pytest.fixture(scope="module")
async def model_url(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[str]:
    if not PYTHON.exists():
        pytest.skip("the local model is not installed; `make demo-llm` installs it (270 MB)")
    with running(tmp_path_factory.mktemp("model") / "log") as url:
        yield url


def providers_file(folder: Path, url: str) -> Path:
    path = folder / "providers.toml"
    path.write_text(table(url), encoding="utf-8")
    return path


async def busy_slots(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return sum(slot["is_processing"] for slot in (await client.get(f"{url}/slots")).json())


async def test_real_tokens_and_real_usage(database_url: str, tmp_path: Path, model_url: str) -> None:
    async with (
        open_house(database_url) as house,
        start_worker(database_url, providers=providers_file(tmp_path, model_url)),
    ):
        job = await house.api.create_soon("chat", says("Tell me about the sea.") | {"max_output_tokens": 40})
        ended = await house.api.ended(job["job_id"])
        assert ended["status"] == "succeeded"
        assert (ended["provider"], ended["result"]["truncated"]) == ("local", True)
        usage = ended["result"]["usage"]
        assert usage["output_tokens"] == 40
        assert usage["input_tokens"] > 5
        (attempt,) = (await house.api.client.get(f"/api/ai/jobs/{job['job_id']}/attempts")).json()["attempts"]
        (call,) = attempt["calls"]
        assert (call["outcome"], call["output_tokens"], call["usage_source"]) == ("succeeded", 40, "provider")
        events = (await house.api.client.get(job["events_url"], headers={"Accept": "application/json"})).json()
        chunks = [event["data"]["text"] for event in events["events"] if event["event"] == "chunk"]
        assert "".join(chunks) == ended["result"]["text"]
        assert len(chunks) > 5, "it was streamed"


async def test_a_cancel_frees_its_slot_within_a_second(database_url: str, tmp_path: Path, model_url: str) -> None:
    async with (
        open_house(database_url) as house,
        start_worker(database_url, providers=providers_file(tmp_path, model_url)),
    ):
        took = []
        for _ in range(TRIES):
            job = await house.api.create_soon("chat", says("Count for ever.") | {"max_output_tokens": 3000})

            async def speaks(job_id: str = job["job_id"]) -> bool:
                return bool((await house.api.get(job_id))["last_event_id"] >= 3)

            await until(speaks)
            began = time.monotonic()
            answer = await house.api.client.post(f"/api/ai/jobs/{job['job_id']}/cancel")
            assert answer.status_code == 202
            with anyio.fail_after(60):
                while await busy_slots(model_url):  # noqa: ASYNC110 - the server tells only who asks
                    await anyio.sleep(0.02)
            took.append(time.monotonic() - began)
            assert (await house.api.ended(job["job_id"]))["status"] == "cancelled"
            (attempt,) = (await house.api.client.get(f"/api/ai/jobs/{job['job_id']}/attempts")).json()["attempts"]
            # Its close is known to stop it, so this is no guess.
            assert attempt["calls"][0]["outcome"] == "cancelled"
    print(f"slot free after {sorted(took)} s")
    assert min(took) < CANCEL_SECONDS
