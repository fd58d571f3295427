"""Reading bodies: bounded in time, and large ones off the event loop."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
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
        await bodies.read_json(request(receive))
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")
    assert caught.value.headers["Connection"] == "close"


async def test_a_client_that_leaves_is_not_a_bad_request() -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await bodies.read_json(request(receive))


async def test_only_large_bodies_leave_the_event_loop() -> None:
    here = threading.get_ident()
    assert await bodies.beside_the_loop(bodies.INLINE_BYTES, threading.get_ident) == here
    assert await bodies.beside_the_loop(bodies.INLINE_BYTES + 1, threading.get_ident) != here
