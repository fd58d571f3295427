"""The strict reader over a socket: heads, cuts, resumption, against a server that answers as it is told."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.scripted_server import NO_CONTENT, STREAM_HEAD, chunked, serve
from tests.support.sse_client import StreamCut, StreamRefused, open_stream, read_to_end
from tests.support.sse_frames import ProtocolBroken
from tests.unit.test_support_frames import GOOD, RETRY, STATUS, frame

pytestmark = pytest.mark.anyio

WORDS = [f"word {n} \U0001f600 " for n in range(60)]
LAST = len(WORDS) + 2


def log_frames() -> list[bytes]:
    """A whole job: attempt, a chunk for every word, the result."""
    attempt = frame("attempt", 1, {"attempt": 1, "resumes_after": 0, "reason": "started"})
    chunks = [frame("chunk", n + 2, {"text": word}) for n, word in enumerate(WORDS)]
    result = {"status": "succeeded", "attempt": 1, "result": {"text": "".join(WORDS)}}
    return [attempt, *chunks, frame("succeeded", LAST, result)]


def job_server(chunk_bytes: int = 1000) -> Callable[[bytes], bytes]:
    """Answers like a gateway with this one finished job."""

    def answer(request: bytes) -> bytes:
        found = re.search(rb"(?i)last-event-id: (\d+)", request)
        after = int(found[1]) if found else 0
        if after == LAST:
            return NO_CONTENT
        return STREAM_HEAD + chunked(RETRY + b"".join(log_frames()[after:]), chunk_bytes)

    return answer


async def test_a_job_is_read_to_its_end() -> None:
    async with serve(job_server()) as url:
        reader = await read_to_end(f"{url}/events?token=x")
    assert reader.text == reader.result["text"] == "".join(WORDS)
    assert reader.ids == list(range(1, LAST + 1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 4000), max_size=8), chunk_bytes=st.integers(1, 3000))
async def test_any_cuts_give_the_same_text(cuts: list[int], chunk_bytes: int) -> None:
    async with serve(job_server(chunk_bytes)) as url:
        reader = await read_to_end(url, cuts=cuts)
    assert reader.text == "".join(WORDS)
    assert reader.ids == list(range(1, LAST + 1))


async def test_a_cut_says_so_and_keeps_what_was_whole() -> None:
    head = len(STREAM_HEAD)
    async with serve(job_server()) as url, open_stream(url, cut_after=head + 300) as stream:
        got = []
        with pytest.raises(StreamCut, match="cut by the test"):
            got.extend([event async for event in stream])
    assert stream.bytes_read == head + 300
    assert stream.cursor > 1


async def test_an_end_without_the_last_chunk_is_a_cut() -> None:
    async with serve(lambda _: STREAM_HEAD + chunked(GOOD, ended=False)) as url, open_stream(url) as stream:
        with pytest.raises(StreamCut, match="ended after"):
            assert [event async for event in stream] == []


async def test_a_clean_end_too_early_breaks_the_protocol() -> None:
    async with serve(lambda _: STREAM_HEAD + chunked(RETRY + STATUS)) as url, open_stream(url) as stream:
        with pytest.raises(ProtocolBroken, match="clean end without"):
            assert [event async for event in stream] == []


async def test_204_has_no_events_and_only_comes_at_the_end() -> None:
    async with serve(lambda _: NO_CONTENT) as url:
        async with open_stream(url) as stream:
            assert [event async for event in stream] == []
            assert stream.status == 204
        with pytest.raises(ProtocolBroken, match="204 before"):
            await read_to_end(url)


async def test_a_refusal_carries_the_problem() -> None:
    body = b'{"status":404,"code":"not_found"}'
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s"
    async with serve(lambda _: answer % (len(body), body)) as url:
        with pytest.raises(StreamRefused) as refused:
            async with open_stream(url):
                pass
    assert (refused.value.status, refused.value.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b"text/event-stream", b"text/event-stream; charset=utf-8"),
        (b", no-transform", b""),
        (b"X-Accel-Buffering: no\r\n", b""),
        (b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
        (b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"),
    ],
)
async def test_the_head_is_exact(right: bytes, wrong: bytes) -> None:
    head = STREAM_HEAD.replace(right, wrong)
    async with serve(lambda _: head + chunked(GOOD)) as url:
        with pytest.raises(ProtocolBroken):
            async with open_stream(url):
                pass
