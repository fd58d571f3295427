"""A job that is being written while the clients read it, and the clients themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.api import Api, Job, call_api, make_key
from tests.support.proxy import Proxy, proxy_to
from tests.support.reader import Reader
from tests.support.servers import fast_extractive, start_gateway, start_worker
from tests.support.sse_frames import Event

HERE = Path(__file__).parent
# Fast enough for a test, slow enough that a client connects while most of the job is still to come.
WORDS_PER_SECOND = 60
SENTENCES = 12
TEXT = " ".join(
    f"Sentence number {n} tells how the {thing} of the harbour, caf\u00e9, \U0001f6a2 and all, met the sea."
    for n, thing in enumerate(["crane", "tug", "pilot", "lamp", "bell", "buoy", "quay", "gull", "rope", "mast"] * 2)
)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job in the middle of its work. `url` are its events, by way of `proxy`, which can cut them."""

    api: Api
    job: Job
    url: str
    proxy: Proxy

    async def expect_whole(self, reader: Reader) -> None:
        """The reader missed nothing, got nothing twice, and holds the text that the job returned."""
        ended = await self.api.ended(self.job["job_id"])
        assert ended["status"] == "succeeded"
        assert reader.finished
        assert reader.ids == list(range(1, reader.cursor + 1))
        assert reader.text == reader.result["text"] == ended["result"]["text"]
        assert len(reader.ids) > SENTENCES


@pytest.fixture
async def running_job(database_url: str, tmp_path: Path) -> AsyncIterator[RunningJob]:
    """One gateway, one worker, one `summarize` that streams for a few seconds."""
    providers = fast_extractive(tmp_path, WORDS_PER_SECOND)
    key = await make_key(database_url)
    async with (
        start_gateway(database_url) as gateway,
        start_worker(database_url, providers=providers),
        proxy_to(gateway.url) as proxy,
        call_api(gateway.url, key) as direct,
        call_api(proxy.url, key) as proxied,
    ):
        job = await direct.create_soon("summarize", {"text": TEXT, "sentences": SENTENCES})
        yield RunningJob(direct, job, proxied.events_url(job), proxy)


@pytest.fixture(scope="session")
def npm_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with follow.mjs and what package-lock.json names, installed by `npm ci`."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json", ".npmrc", "follow.mjs"):
        shutil.copy(HERE / name, folder)
    subprocess.run(
        [tool("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        env=node_environment(),
        check=True,
        timeout=120,
        capture_output=True,
    )
    return folder


def node_environment() -> dict[str, str]:
    """With this Python's own node first, which is what npm starts."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def tool(name: str) -> str:
    """The path of a client's program, this Python's own before the system's; skips by name where there is none."""
    found = shutil.which(name, path=node_environment()["PATH"])
    if found is None:
        pytest.skip(f"client test: no {name} on PATH; install {name} to run it")
    return found


def event_of(name: str, id_: str, data: dict[str, object]) -> Event:
    """What a client saw, as the reference reader takes it. Clients keep the last id on events that have none."""
    return Event(name, None if name in ("heartbeat", "reconnect") else int(id_), data)
