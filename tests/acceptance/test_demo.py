"""`python web-demo`, as `make demo` runs it: real processes, stopped in every way that one can stop them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from typing import Any

import psutil
import pytest

from tests.support.demo import READY_WITHIN_S, STOPPED_WITHIN_S, Demo, Demos
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.anyio]


def status_of(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


class Browser:
    """Keeps its cookie, as a browser does."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, path, json.dumps(body) if body else None, self._headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, text
            if cookies := answer.msg.get_all("Set-Cookie"):
                self._headers["Cookie"] = "; ".join(cookie.partition(";")[0] for cookie in cookies)
            return json.loads(text) if text else {}
        finally:
            connection.close()


def child_of(demo: Demo, module: str) -> psutil.Process:
    return next(child for child in psutil.Process(demo.process.pid).children() if module in child.cmdline())


async def test_it_runs_and_ctrl_c_leaves_nothing(demos: Demos) -> None:
    demo = demos.run()
    host, port = await demo.ready()
    assert status_of(host, port, "/readyz") == 200
    assert status_of(host, port, "/") == 200
    demo.process.send_signal(signal.SIGINT)
    assert await demo.ended() == 0
    assert "Everything is stopped" in demo.said
    assert demos.processes() == []


async def test_the_next_one_finds_the_jobs_of_the_last(demos: Demos) -> None:
    first = demos.run()
    host, port = await first.ready()
    browser = Browser(host, port)
    browser.ask("POST", "/demo/session")
    job = browser.ask("POST", "/api/ai/jobs", {"kind": "summarize", "input": {"text": "It is kept. It is found."}})
    await until(lambda: browser.ask("GET", f"/api/ai/jobs/{job['job_id']}")["status"] == "succeeded", READY_WITHIN_S)
    first.process.terminate()
    await first.ended()
    second = demos.run()
    browser.host, browser.port = await second.ready()
    assert browser.ask("GET", f"/api/ai/jobs/{job['job_id']}")["result"]["text"]
    second.process.terminate()
    await second.ended()


async def test_a_second_one_says_so_and_ends(demos: Demos) -> None:
    first = demos.run()
    _, port = await first.ready()
    second = demos.run()
    assert await second.ended() == 1
    assert f"already runs (process {first.process.pid}, its page is http://127.0.0.1:{port})" in second.said
    assert "Traceback" not in second.said
    first.process.terminate()
    assert await first.ended() == 0


async def test_after_kill_9_nothing_stays_and_the_next_one_runs(demos: Demos) -> None:
    first = demos.run()
    await first.ready()
    secret = (demos.directory / "secret").read_text()
    first.process.kill()
    await first.ended()
    await until(lambda: demos.processes() == [], STOPPED_WITHIN_S)
    second = demos.run()
    await second.ready()
    assert (demos.directory / "secret").read_text() == secret
    second.process.terminate()
    assert await second.ended() == 0
    assert demos.processes() == []


async def test_after_kill_9_of_all_of_it_the_next_one_takes_the_server_over(demos: Demos) -> None:
    first = demos.run()
    await first.ready()
    holder = child_of(first, "schema.embedded")
    (server,) = holder.children()
    first.process.send_signal(signal.SIGSTOP)
    holder.kill()
    first.process.kill()
    await first.ended()
    assert server.is_running()
    second = demos.run()
    await second.ready()
    second.process.terminate()
    assert await second.ended() == 0
    assert demos.processes() == []


@pytest.mark.parametrize(
    ("module", "name"), [("gateway", "gateway"), ("worker", "worker [12]"), ("schema.embedded", "postgres")]
)
async def test_a_child_that_dies_is_named_and_ends_the_rest(demos: Demos, module: str, name: str) -> None:
    demo = demos.run()
    await demo.ready()
    child_of(demo, module).kill()
    assert await demo.ended() == 1
    assert re.search(rf"Error: {name} ended with signal SIGKILL", demo.said), demo.said
    if module == "schema.embedded":
        # Its holder was killed, so the server has outlived the demo; the next one takes it over.
        again = demos.run()
        await again.ready()
        again.process.terminate()
        assert await again.ended() == 0
    assert demos.processes() == []


async def test_a_port_that_is_taken_is_said_in_one_sentence(demos: Demos) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        demo = demos.run(OUTLIVE_PORT=str(port))
        assert await demo.ended() == 1
    assert f"port {port} of 127.0.0.1 is taken" in demo.said
    assert "Traceback" not in demo.said
