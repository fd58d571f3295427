"""Starting, signalling and ending real processes, on a server of the standard library."""

from __future__ import annotations

import re
import signal
import socket

import psutil
import pytest

from tests.support.processes import ProcessFailed, ServerProcess, run
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

ARGUMENTS = ("0", "--bind", "127.0.0.1")


async def test_a_process_starts_ends_and_starts_again() -> None:
    async with run("http.server", {}, *ARGUMENTS) as server:
        await server.logs("Serving HTTP")
        assert await server.stop() == -signal.SIGTERM
        assert not server.runs
        known = len(server.log_text())
        await server.launch()
        await server.logs("Serving HTTP", after=known)
        await server.kill()
        assert not server.runs
    assert not server.log.exists()


async def test_a_paused_process_stands_still_and_goes_on() -> None:
    async with run("http.server", {}, *ARGUMENTS) as server:
        await server.logs("Serving HTTP")
        server.pause()
        await until(lambda: psutil.Process(server.pid).status() == psutil.STATUS_STOPPED)
        server.resume()
        await until(lambda: psutil.Process(server.pid).status() != psutil.STATUS_STOPPED)
        found = re.search(r"port (\d+)", server.log_text())
        assert found
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=5):
            pass


async def test_what_ends_by_itself_fails_with_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProcessFailed, match="No module named no_such_module"):
        async with run("no_such_module", {}) as process:
            await process.logs("ready")
    assert "log of no_such_module" in capsys.readouterr().out


async def test_what_does_not_end_is_killed_and_fails() -> None:
    async with run("http.server", {}, *ARGUMENTS) as server:
        await server.logs("Serving HTTP")
        server.pause()
        with pytest.raises(ProcessFailed, match=r"did not end within 0\.1 s"):
            await server.wait(0.1)
        assert not server.runs


async def test_a_process_sees_nothing_of_the_callers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_PORT", "1")
    async with ServerProcess("http.server", {"OWN": "yes"}, ARGUMENTS) as server:
        await server.launch()
        environment = await until(lambda: psutil.Process(server.pid).environ())
    assert environment["OWN"] == "yes"
    assert "OUTLIVE_PORT" not in environment
