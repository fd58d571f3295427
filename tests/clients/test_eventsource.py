"""npm's eventsource: reconnects and resumes by itself, and stops for good at 204."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tests.clients.conftest import RunningJob, event_of, node_environment, tool
from tests.support.event_rules import RULES
from tests.support.reader import Reader

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

# Two reconnects of up to 3 s each, and the job.
WITHIN_S = 45


async def follow(folder: Path, url: str) -> list[dict[str, Any]]:
    """Everything that follow.mjs printed until it ended by itself."""
    command = [tool("node"), "follow.mjs", url, *RULES]
    printed = ""
    with anyio.fail_after(WITHIN_S):
        async with await anyio.open_process(command, cwd=folder, env=node_environment(), stderr=None) as process:
            assert process.stdout is not None
            async for text in TextReceiveStream(process.stdout):
                printed += text
            assert await process.wait() == 0
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("cuts", [[], [900], [600, 900]])
async def test_it_follows_a_job_over_cuts_and_stops(
    running_job: RunningJob, npm_clients: Path, cuts: list[int]
) -> None:
    for byte in cuts:
        running_job.proxy.cut_next_after(byte)
    seen = await follow(npm_clients, running_job.url)

    reader = Reader()
    for each in seen:
        if "data" in each:
            reader.take(event_of(each["event"], each["id"], each["data"]))
    await running_job.expect_whole(reader)
    assert [each["event"] for each in seen].count("open") == len(cuts) + 1
    assert seen[-1] == {"event": "error", "status": 204, "closed": True}


def test_the_lock_file_names_no_address(npm_clients: Path) -> None:
    lock = json.loads((npm_clients / "package-lock.json").read_text())
    locked = [package for name, package in lock["packages"].items() if name]
    assert locked
    assert all("resolved" not in package and package["integrity"] for package in locked)
    assert subprocess.run([tool("node"), "--version"], env=node_environment(), check=True, timeout=30).returncode == 0
