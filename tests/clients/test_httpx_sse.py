"""httpx-sse: ends at each cut, and resumes where its caller says."""

from __future__ import annotations

import anyio
import httpx
import pytest
from httpx_sse import aconnect_sse

from tests.clients.conftest import RunningJob, event_of
from tests.support.reader import Reader

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

WITHIN_S = 45


async def follow_once(client: httpx.AsyncClient, url: str, reader: Reader) -> None:
    """One connection. Raises httpx.TransportError where it was cut."""
    resume = {"Last-Event-ID": str(reader.cursor)} if reader.cursor else {}
    async with aconnect_sse(client, "GET", url, headers=resume) as source:
        async for each in source.aiter_sse():
            # This client gives a message of its own for a frame without data, such as the one with retry.
            if each.data:
                reader.take(event_of(each.event, each.id, each.json()))


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_it_follows_a_job_over_cuts(running_job: RunningJob, how: str) -> None:
    cuts = [500, 700, 900]
    for byte in cuts:
        running_job.proxy.cut_next_after(byte, "rst" if how == "rst" else "fin")
    reader = Reader()
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        with anyio.fail_after(WITHIN_S):
            for _ in cuts:
                with pytest.raises(httpx.TransportError):
                    await follow_once(client, running_job.url, reader)
                assert not reader.finished
            await follow_once(client, running_job.url, reader)
            again = await client.get(running_job.url, headers={"Last-Event-ID": str(reader.cursor)})
    await running_job.expect_whole(reader)
    assert again.status_code == 204
