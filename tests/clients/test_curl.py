"""`curl -N`: every byte as it came, and an exit code that tells a cut from an end."""

from __future__ import annotations

import subprocess

import anyio
import pytest

from tests.clients.conftest import RunningJob, tool
from tests.support.reader import Reader
from tests.support.sse_frames import Frames

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

WITHIN_S = 45
# "Transferred a partial file": curl's own word for a body that did not end.
CUT = 18


async def curl(url: str, reader: Reader) -> int:
    """One connection, fed to the reader; curl's exit code."""
    resume = ["-H", f"Last-Event-ID: {reader.cursor}"] if reader.cursor else []
    command = [tool("curl"), "-sS", "-N", "--noproxy", "*", "--max-time", str(WITHIN_S), *resume, url]
    done = await anyio.run_process(command, stderr=subprocess.PIPE, check=False)
    frames = Frames(reader.cursor)
    for event in frames.feed(done.stdout):
        reader.take(event)
    if done.returncode == 0 and done.stdout:
        frames.end()
    return done.returncode


async def test_it_follows_a_job_over_a_cut(running_job: RunningJob) -> None:
    running_job.proxy.cut_next_after(900, "fin")
    reader = Reader()
    assert await curl(running_job.url, reader) == CUT
    assert reader.cursor > 0
    assert not reader.finished
    assert await curl(running_job.url, reader) == 0
    await running_job.expect_whole(reader)
    before = list(reader.ids)
    assert await curl(running_job.url, reader) == 0
    assert reader.ids == before
