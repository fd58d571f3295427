"""Bad input is refused in the contract's words, and nothing of it is stored."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.acceptance.conftest import Desk, problem

pytestmark = pytest.mark.anyio

WORK: dict[str, Any] = {"kind": "note", "input": {"text": "one"}}
MIB = 1024 * 1024


def nested(levels: int) -> bytes:
    """A whole body whose deepest array is on that level."""
    inside = levels - 2
    return b'{"kind":"note","input":{"text":"x","any":' + b"[" * inside + b"]" * inside + b"}}"


BAD_JSON = {
    "empty": b"",
    "blank": b"   ",
    "cut": b'{"kind": "note"',
    "two": b"{}{}",
    "single quotes": b"{'kind': 'note'}",
    "trailing comma": b'{"kind": "note",}',
    "doubled member": b'{"kind":"note","kind":"note","input":{"text":"x"}}',
    "doubled member inside": b'{"kind":"note","input":{"text":"x","text":"x"}}',
    "doubled by escape": b'{"kind":"note","\\u006bind":"note","input":{"text":"x"}}',
    "NaN": b'{"kind":"note","input":{"text":"x","any":NaN}}',
    "Infinity": b'{"kind":"note","input":{"text":"x","any":Infinity}}',
    "-Infinity": b'{"kind":"note","input":{"text":"x","any":-Infinity}}',
    "infinite by size": b'{"kind":"note","input":{"text":"x","any":1e999}}',
    "integer": b'{"kind":"note","input":{"text":"x","any":9007199254740992}}',
    "negative integer": b'{"kind":"note","input":{"text":"x","any":-9007199254740992}}',
    "a million digits": b'{"kind":"note","input":{"text":"x","any":' + b"9" * 1_000_000 + b"}}",
    "65 levels": nested(65),
    "100,000 brackets": b"[" * 100_000,
    "100,000 brackets, closed": nested(100_000),
    "100,000 braces": b'{"a":' * 100_000,
    "no UTF-8": b'{"kind":"note","input":{"text":"\xff"}}',
    "raw surrogate": b'{"kind":"note","input":{"text":"\xed\xa0\x80"}}',
    "UTF-16": json.dumps(WORK).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(WORK).encode(),
    "raw control character": b'{"kind":"note","input":{"text":"\x01"}}',
    "raw NUL": b'{"kind":"note","input":{"text":"\x00"}}',
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON.keys())
async def test_bad_json_is_400_and_stores_nothing(desk: Desk, body: bytes) -> None:
    before = await desk.rows()
    assert problem(await desk.post(body)) == (400, "bad_json")
    assert await desk.rows() == before


async def test_64_levels_and_the_largest_integers_are_fine(desk: Desk) -> None:
    assert (await desk.post(nested(64), "64 levels")).status_code == 202
    numbers = b'{"kind":"note","input":{"text":"x","any":[9007199254740991,-9007199254740991,1e300,-0.0]}}'
    assert (await desk.post(numbers, "numbers")).status_code == 202


INVALID: dict[str, tuple[object, str]] = {
    "no object": ([], ""),
    "null": (None, ""),
    "a string": ("note", ""),
    "no kind": ({"input": {"text": "x"}}, ""),
    "no input": ({"kind": "note"}, ""),
    "kind of a wrong type": ({**WORK, "kind": 1}, "/kind"),
    "empty kind": ({**WORK, "kind": ""}, "/kind"),
    "unknown member": ({**WORK, "colour": "red"}, ""),
    "input of a wrong type": ({**WORK, "input": "text"}, "/input"),
    "unknown member of the input": ({**WORK, "input": {"text": "x", "b": 1}}, "/input"),
    "empty text": ({**WORK, "input": {"text": ""}}, "/input/text"),
    "text of a wrong type": ({**WORK, "input": {"text": 1}}, "/input/text"),
    "text too long": ({**WORK, "input": {"text": "x" * 1_000_001}}, "/input/text"),
    "metadata no object": ({**WORK, "metadata": []}, "/metadata"),
    "metadata too large": ({**WORK, "metadata": {"a": "x" * 16_384}}, "/metadata"),
    "priority too high": ({**WORK, "priority": 101}, "/priority"),
    "priority too low": ({**WORK, "priority": -101}, "/priority"),
    "priority in part": ({**WORK, "priority": 0.5}, "/priority"),
    "priority true": ({**WORK, "priority": True}, "/priority"),
    "no attempts": ({**WORK, "max_attempts": 0}, "/max_attempts"),
    "too many attempts": ({**WORK, "max_attempts": 21}, "/max_attempts"),
    "on_unknown": ({**WORK, "on_unknown": "maybe"}, "/on_unknown"),
    "on_disconnect": ({**WORK, "on_disconnect": "explode"}, "/on_disconnect"),
    "cancel on disconnect": ({**WORK, "on_disconnect": "cancel"}, "/on_disconnect"),
    "run_at without a zone": ({**WORK, "run_at": "2030-01-01T00:00:00"}, "/run_at"),
    "run_at a date": ({**WORK, "run_at": "2030-01-01"}, "/run_at"),
    "run_at a number": ({**WORK, "run_at": 1}, "/run_at"),
    "run_at no time": ({**WORK, "run_at": "2030-13-01T00:00:00Z"}, "/run_at"),
    "run_at too far": ({**WORK, "run_at": "2200-01-01T00:00:00Z"}, "/run_at"),
    "run_at before all time": ({**WORK, "run_at": "0001-01-01T00:00:00Z"}, "/run_at"),
    "run_at before the calendar": ({**WORK, "run_at": "0001-01-01T00:00:00+23:59"}, "/run_at"),
    "start_before": ({**WORK, "start_before": "soon"}, "/start_before"),
    "start_before before the calendar": ({**WORK, "start_before": "0001-01-01T00:00:00+23:59"}, "/start_before"),
    "start_before after it": ({**WORK, "start_before": "9999-12-31T23:59:59.999999-23:59"}, "/start_before"),
    "a negative limit of cost": ({**WORK, "max_cost_usd": -1}, "/max_cost_usd"),
    "no cost at all": ({**WORK, "max_cost_usd": 0}, "/max_cost_usd"),
    "too high a limit of cost": ({**WORK, "max_cost_usd": 10_000.000000001}, "/max_cost_usd"),
    "too fine a limit of cost": ({**WORK, "max_cost_usd": 0.0000000001}, "/max_cost_usd"),
    "a limit of cost that is no number": ({**WORK, "max_cost_usd": "1e3"}, "/max_cost_usd"),
    "a limit of cost of a wrong type": ({**WORK, "max_cost_usd": True}, "/max_cost_usd"),
    "empty user": ({**WORK, "user_id": ""}, "/user_id"),
    "user too long": ({**WORK, "user_id": "x" * 256}, "/user_id"),
    "provider of a wrong type": ({**WORK, "provider": 1}, "/provider"),
}


@pytest.mark.parametrize(("body", "pointer"), INVALID.values(), ids=INVALID.keys())
async def test_invalid_input_is_422_with_a_pointer_and_stores_nothing(desk: Desk, body: object, pointer: str) -> None:
    before = await desk.rows()
    answer = await desk.post(json.dumps(body).encode())
    assert problem(answer) == (422, "invalid_input")
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert all(error["message"] for error in answer.json()["errors"])
    assert await desk.rows() == before


async def test_errors_are_few_and_do_not_repeat_what_was_sent(desk: Desk) -> None:
    secret = "tell nobody " * 1000
    answer = await desk.post({**WORK, "input": {"text": 1, secret: 1, **{f"x{n}": 1 for n in range(100)}}})
    assert problem(answer) == (422, "invalid_input")
    assert len(answer.json()["errors"]) <= 20
    assert len(answer.text) < 5000
    assert secret not in answer.text


async def test_an_unknown_kind_is_422(desk: Desk) -> None:
    before = await desk.rows()
    assert problem(await desk.post({"kind": "other", "input": {}})) == (422, "unknown_kind")
    assert await desk.rows() == before


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "caf\u00e9"])
async def test_a_key_that_is_none_is_400(desk: Desk, key: str) -> None:
    headers = {**desk.auth(), "Idempotency-Key": key.encode("latin-1")}
    answer = await desk.client.post("/api/ai/jobs", json=WORK, headers=headers)  # type: ignore[arg-type]
    assert problem(answer) == (400, "idempotency_key_missing")


async def test_no_key_or_two_are_400(desk: Desk) -> None:
    for keys in ([], [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]):
        answer = await desk.client.post("/api/ai/jobs", json=WORK, headers=[*desk.auth().items(), *keys])
        assert problem(answer) == (400, "idempotency_key_missing")


async def test_the_longest_key_is_taken(desk: Desk) -> None:
    assert (await desk.post(WORK, "k" * 255)).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "br"},
    ],
)
async def test_another_media_type_is_415(desk: Desk, headers: dict[str, str]) -> None:
    answer = await desk.post(json.dumps(WORK).encode(), **headers)
    assert problem(answer) == (415, "unsupported_media_type")


async def test_json_with_its_charset_is_taken(desk: Desk) -> None:
    answer = await desk.post(
        json.dumps(WORK).encode(), "charset", **{"Content-Type": 'application/json; charset="UTF-8"'}
    )
    assert answer.status_code == 202


async def test_a_body_over_8_mib_is_413_whether_announced_or_not(desk: Desk) -> None:
    before = await desk.rows()
    body = b'{"kind":"note","input":{"text":"' + b"x" * (8 * MIB) + b'"}}'
    assert problem(await desk.post(body)) == (413, "too_large")

    async def pieces() -> Any:
        for start in range(0, len(body), MIB):
            yield body[start : start + MIB]

    headers = {**desk.auth(), "Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = await desk.client.post("/api/ai/jobs", content=pieces(), headers=headers)
    assert problem(answer) == (413, "too_large")
    assert await desk.rows() == before


async def test_an_announced_body_is_refused_before_it_is_sent(desk: Desk) -> None:
    """The answer comes although not one byte of the body has been sent."""
    answer = await raw(
        desk,
        f"POST /api/ai/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {desk.key}\r\nIdempotency-Key: k\r\n"
        f"Content-Type: application/json\r\nContent-Length: {9 * MIB}\r\n\r\n",
    )
    assert b" 413 " in answer.splitlines()[0]


async def test_what_is_not_http_gets_a_problem_too(desk: Desk) -> None:
    answer = await raw(desk, "GARBAGE\r\n\r\n")
    assert b" 400 " in answer.splitlines()[0]
    assert b"application/problem+json" in answer


async def raw(desk: Desk, request: str) -> bytes:
    """The beginning of the answer to these bytes."""
    address = urlsplit(str(desk.client.base_url))
    assert address.hostname is not None
    assert address.port is not None
    stream = await anyio.connect_tcp(address.hostname, address.port)
    async with stream:
        await stream.send(request.encode())
        with anyio.fail_after(10):
            return await stream.receive()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/ai/jobs", {"GET", "HEAD", "POST"}),
        ("DELETE", "/api/ai/tokens", {"POST"}),
        ("POST", "/api/ai/kinds", {"GET", "HEAD"}),
        ("PATCH", "/livez", {"GET", "HEAD"}),
        ("POST", "/api/ai/jobs/018f0000-0000-7000-8000-000000000000", {"GET", "HEAD"}),
    ],
)
async def test_another_method_is_405_with_allow(desk: Desk, method: str, path: str, allowed: set[str]) -> None:
    answer = await desk.client.request(method, path, headers=desk.auth())
    assert problem(answer) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/api", "/api/ai/jobs/", "/api/ai/jobs/a/b", "/api/ai/nothing", "//"]
)
async def test_an_unknown_address_is_404_and_never_a_redirect(desk: Desk, path: str) -> None:
    assert problem(await desk.get(path)) == (404, "not_found")


@pytest.mark.parametrize("accept", ["text/html", "application/xml, text/*", "application/json;q=0"])
async def test_who_takes_no_json_gets_406(desk: Desk, accept: str) -> None:
    assert problem(await desk.get("/api/ai/jobs", Accept=accept)) == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "application/*", "application/json", "text/html, */*;q=0.1"])
async def test_who_takes_json_gets_it(desk: Desk, accept: str) -> None:
    assert (await desk.get("/api/ai/jobs", Accept=accept)).status_code == 200


async def test_every_answer_under_api_is_no_store(desk: Desk) -> None:
    answers = [
        await desk.get("/api/ai/jobs"),
        await desk.get("/api/ai/nothing"),
        await desk.client.get("/api/ai/jobs"),
        await desk.post(b"{"),
        await desk.client.put("/api/ai/jobs"),
    ]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    assert {answer.headers["x-content-type-options"] for answer in answers} == {"nosniff"}
