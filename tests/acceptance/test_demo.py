"""`python web-demo`, as `make demo` runs it: real processes, stopped in every way that one can stop them."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN_S = 50.0
STOPPED_WITHIN_S = 50.0

pytestmark = [pytest.mark.timeout(180), pytest.mark.anyio]


class Demo:
    """One run of the demo on a free port, with its data in `directory`."""

    def __init__(self, directory: Path, **environment: str) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OUTLIVE_", "DATABASE_URL"))
        }
        self.process = subprocess.Popen(
            [sys.executable, "web-demo"],
            cwd=ROOT,
            env={**kept, "OUTLIVE_EMBEDDED_DIR": str(directory), "OUTLIVE_PORT": "0", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    async def ready(self) -> tuple[str, int]:
        await until(lambda: "is ready" in self.said or self.process.poll() is not None, READY_WITHIN_S)
        found = re.search(r"is ready: +http://([0-9.]+):([0-9]+)/", self.said)
        assert found, self.said
        return found[1], int(found[2])

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None, STOPPED_WITHIN_S)
        self._reader.join(STOPPED_WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="outlive-demo-"))
    path.chmod(0o755)
    yield path / "pg"
    for process in processes_of(path):
        process.kill()
    shutil.rmtree(path)


def processes_of(directory: Path) -> list[psutil.Process]:
    """All live processes that were told of this folder."""
    return [process for process in psutil.process_iter() if speaks_of(process, str(directory))]


def speaks_of(process: psutil.Process, folder: str) -> bool:
    try:
        told = [*process.cmdline(), process.environ().get("OUTLIVE_EMBEDDED_DIR", "")]
        return process.status() != psutil.STATUS_ZOMBIE and any(folder in word for word in told)
    except psutil.Error:
        return False


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


async def test_it_runs_and_ctrl_c_leaves_nothing(directory: Path) -> None:
    demo = Demo(directory)
    host, port = await demo.ready()
    assert status_of(host, port, "/readyz") == 200
    assert status_of(host, port, "/") == 200
    demo.process.send_signal(signal.SIGINT)
    assert await demo.ended() == 0
    assert "Everything is stopped" in demo.said
    assert processes_of(directory) == []


async def test_the_next_one_finds_the_jobs_of_the_last(directory: Path) -> None:
    first = Demo(directory)
    host, port = await first.ready()
    browser = Browser(host, port)
    browser.ask("POST", "/demo/session")
    job = browser.ask("POST", "/api/ai/jobs", {"kind": "summarize", "input": {"text": "It is kept. It is found."}})
    await until(lambda: browser.ask("GET", f"/api/ai/jobs/{job['job_id']}")["status"] == "succeeded", READY_WITHIN_S)
    first.process.terminate()
    await first.ended()
    second = Demo(directory)
    browser.host, browser.port = await second.ready()
    assert browser.ask("GET", f"/api/ai/jobs/{job['job_id']}")["result"]["text"]
    second.process.terminate()
    await second.ended()


async def test_a_second_one_says_so_and_ends(directory: Path) -> None:
    first = Demo(directory)
    _, port = await first.ready()
    second = Demo(directory)
    assert await second.ended() == 1
    assert f"already runs (process {first.process.pid}, its page is http://127.0.0.1:{port})" in second.said
    assert "Traceback" not in second.said
    first.process.terminate()
    assert await first.ended() == 0


async def test_after_kill_9_nothing_stays_and_the_next_one_runs(directory: Path) -> None:
    first = Demo(directory)
    await first.ready()
    secret = (directory / "secret").read_text()
    first.process.kill()
    await first.ended()
    await until(lambda: processes_of(directory) == [], STOPPED_WITHIN_S)
    second = Demo(directory)
    await second.ready()
    assert (directory / "secret").read_text() == secret
    second.process.terminate()
    assert await second.ended() == 0
    assert processes_of(directory) == []


async def test_after_kill_9_of_all_of_it_the_next_one_takes_the_server_over(directory: Path) -> None:
    first = Demo(directory)
    await first.ready()
    holder = child_of(first, "schema.embedded")
    (server,) = holder.children()
    first.process.send_signal(signal.SIGSTOP)
    holder.kill()
    first.process.kill()
    await first.ended()
    assert server.is_running()
    second = Demo(directory)
    await second.ready()
    second.process.terminate()
    assert await second.ended() == 0
    assert processes_of(directory) == []


@pytest.mark.parametrize(
    ("module", "name"), [("gateway", "gateway"), ("worker", "worker [12]"), ("schema.embedded", "postgres")]
)
async def test_a_child_that_dies_is_named_and_ends_the_rest(directory: Path, module: str, name: str) -> None:
    demo = Demo(directory)
    await demo.ready()
    child_of(demo, module).kill()
    assert await demo.ended() == 1
    assert re.search(rf"Error: {name} ended with signal SIGKILL", demo.said), demo.said
    if module == "schema.embedded":
        # Its holder was killed, so the server has outlived the demo; the next one takes it over.
        again = Demo(directory)
        await again.ready()
        again.process.terminate()
        assert await again.ended() == 0
    assert processes_of(directory) == []


async def test_ctrl_c_before_it_is_up_leaves_nothing(directory: Path) -> None:
    demo = Demo(directory)
    await until(lambda: "Starting PostgreSQL" in demo.said, READY_WITHIN_S)
    demo.process.send_signal(signal.SIGINT)
    assert await demo.ended() == 0
    assert processes_of(directory) == []


async def test_a_port_that_is_taken_is_said_in_one_sentence(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        demo = Demo(directory, OUTLIVE_PORT=str(port))
        assert await demo.ended() == 1
    assert f"port {port} of 127.0.0.1 is taken" in demo.said
    assert "Traceback" not in demo.said
