"""Reading bodies: bounded in time, and large ones off the event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from contextvars import Context
from typing import Any

import anyio
import pytest
from starlette.requests import ClientDisconnect, Request

from gateway import bodies
from gateway.problems import Problem

pytestmark = pytest.mark.anyio


def request(receive: Any) -> Request:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    return Request(scope, receive)


async def test_a_body_that_is_too_slow_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_SECONDS", 0.05)
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> MutableMapping[str, Any]:
        for piece in pieces:
            return piece
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(Problem) as caught:
        await bodies.read_body(request(receive))
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")
    assert caught.value.headers["Connection"] == "close"


async def test_a_client_that_leaves_is_not_a_bad_request() -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await bodies.read_body(request(receive))


def where(_body: bytes) -> int:
    return os.getpid()


def refuse(_body: bytes) -> None:
    raise Problem("invalid_input", "No.", errors=[{"pointer": "/a", "message": "no"}])


def beside_the_loop(work: Callable[[bytes], Any], body: bytes) -> Any:
    """In a loop of its own: anyio keeps the processes, and the task that ends them, as long as the loop lives. In a
    context of its own, too: with sniffio there, the one of a fixture that waits for its end counts as running."""
    return Context().run(anyio.run, bodies.beside_the_loop, work, body)


def test_only_large_bodies_leave_the_process() -> None:
    assert beside_the_loop(where, b"x" * bodies.INLINE_BYTES) == os.getpid()
    assert beside_the_loop(where, b"x" * (bodies.INLINE_BYTES + 1)) != os.getpid()


@pytest.mark.parametrize("sign", [b",", b"[", b"{"])
def test_a_small_body_of_many_values_leaves_it_too(sign: bytes) -> None:
    assert beside_the_loop(where, sign * bodies.INLINE_VALUES) == os.getpid()
    assert beside_the_loop(where, sign * (bodies.INLINE_VALUES + 1)) != os.getpid()


def test_a_problem_comes_back_whole() -> None:
    with pytest.raises(Problem) as caught:
        beside_the_loop(refuse, b"x" * (bodies.INLINE_BYTES + 1))
    errors = [{"pointer": "/a", "message": "no"}]
    assert caught.value.document() == Problem("invalid_input", "No.", errors=errors).document()
