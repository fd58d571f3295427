"""One PostgreSQL a session, a fresh database for every test, and nothing left behind by any of them."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.async_api import Browser

from tests.support.browser import Window, find_or_install, open_browser, open_window
from tests.support.databases import Databases
from tests.support.postgres import DurablePostgres, HeldPostgres, read_address

# An administrator's address on a server where databases may be made; without it an embedded one is started.
OWN_SERVER = "TEST_DATABASE_URL"

# Set by what may not pass with a hole in it: every skip is then a failure.
REQUIRE_ALL = "OUTLIVE_TEST_REQUIRE_ALL"

# Tasks that were cancelled by the last line of a test end in the loop's next turns.
LEAKED_TASKS_END_WITHIN_S = 1.0

# Beyond its time-out, which is an exception that whatever the loop is just at may swallow: the test then goes on for
# ever, and the run with it.
HANGS_AFTER_S = 60.0

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

_SERVER = pytest.StashKey[HeldPostgres]()
_SESSION = pytest.StashKey[dict[str, str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """The controller owns the server and tells the xdist workers where it is."""
    config = session.config
    if hasattr(config, "workerinput"):
        config.stash[_SESSION] = config.workerinput["outlive"]
        return
    config.stash[_SESSION] = facts = {"name": uuid.uuid4().hex[:12]}
    if os.environ.get(OWN_SERVER):
        facts["url"] = os.environ[OWN_SERVER]
        if not facts["url"].startswith(("postgresql://", "postgres://")):
            pytest.exit(f"{OWN_SERVER} has to start with postgresql:// and name an administrator's database", 4)
        config.add_cleanup(lambda: _drop_template(facts))
        return
    config.stash[_SERVER] = server = HeldPostgres(fast=True)
    config.add_cleanup(server.close)
    facts["directory"] = str(server.directory)
    # Workers cannot start what only the controller may stop; without any, the first test that needs it does.
    if config.getoption("numprocesses", None):
        server.start()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["outlive"] = node.config.stash[_SESSION]


def pytest_configure(config: pytest.Config) -> None:
    """A run that is cut has said what failed until then."""
    if os.environ.get(REQUIRE_ALL) == "1" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.section(f"{report.when} of {report.nodeid}", sep="-", red=True)
            terminal.line(report.longreprtext)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(limit_s + HANGS_AFTER_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest takes any such clock back for a debugger; what is left of a test that failed can hang just as well."""
    if isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)


def _drop_template(facts: dict[str, str]) -> None:
    databases = Databases(facts["url"], facts["name"])
    try:
        databases.drop_template()
    finally:
        databases.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _unless_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _unless_skipped((yield))


def _unless_skipped(report: Report) -> Report:
    if os.environ.get(REQUIRE_ALL) == "1" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which {REQUIRE_ALL}=1 forbids: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run is said by name, where nobody reads past it."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"NOT RUN: {len(skipped)} skipped", red=True, bold=True)
    for report in skipped:
        terminalreporter.line(f"{report.nodeid}: {_reason(report)}", red=True)


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"debug": True})


@pytest.fixture(autouse=True)
def nothing_leaks(request: pytest.FixtureRequest) -> None:
    """Only where a loop is used at all: asking for the other fixture would give every test one."""
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("no_task_leaks")


@pytest.fixture
async def no_task_leaks(anyio_backend: object) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    leaked = {task for task in asyncio.all_tasks() - before if not _is_of_the_runner(task)}
    if leaked:
        _, leaked = await asyncio.wait(leaked, timeout=LEAKED_TASKS_END_WITHIN_S)
    if leaked:
        pytest.fail("tasks still run after the test: " + "; ".join(map(repr, leaked)), pytrace=False)


def _is_of_the_runner(task: asyncio.Task[Any]) -> bool:
    """anyio's pytest plugin carries tests and fixtures in tasks of its own."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")


@pytest.fixture(scope="session")
def admin_url(pytestconfig: pytest.Config) -> str:
    """An administrator's address of the session's server, database `postgres`."""
    facts = pytestconfig.stash[_SESSION]
    if "url" in facts:
        return facts["url"]
    server = pytestconfig.stash.get(_SERVER, None)
    if server is not None:
        server.start()
    return read_address(Path(facts["directory"])).url


@pytest.fixture(scope="session")
def databases(admin_url: str, pytestconfig: pytest.Config) -> Iterator[Databases]:
    made = Databases(admin_url, pytestconfig.stash[_SESSION]["name"])
    yield made
    made.close()


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """A fresh database with the project's tables; the test fails if it leaves a connection open to it."""
    yield from _one_database(databases, migrated=True)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """A fresh database with nothing in it, for tests of migrations; watched like `database_url`."""
    yield from _one_database(databases, migrated=False)


def _one_database(databases: Databases, *, migrated: bool) -> Iterator[str]:
    url = databases.create(migrated=migrated)
    yield url
    left_open = databases.left_open(url)
    databases.drop(url)
    if left_open:
        pytest.fail("connections still open after the test: " + "; ".join(left_open), pytrace=False)


@pytest.fixture
async def durable_postgres(anyio_backend: object) -> AsyncIterator[DurablePostgres]:
    """A private server with fsync on, which the test may stop, kill and start again.

    It has no tables yet: `tests.support.databases.make_migrated` makes a database with them.
    """
    server = DurablePostgres()
    try:
        await server.start()
        yield server
    finally:
        await server.close()


@pytest.fixture(scope="session")
async def browser(anyio_backend: object) -> AsyncIterator[Browser]:
    """One Chromium a test process; without one, and where none can be installed, the test is skipped."""
    executable = find_or_install()
    if executable is None:
        pytest.skip("browser test: no Chromium on PATH and none could be installed; apt-get install chromium")
    async with open_browser(executable) as started:
        yield started


@pytest.fixture
async def window(browser: Browser) -> AsyncIterator[Window]:
    """A fresh browser context with nothing stored; `open_page` gives a tab."""
    async with open_window(browser) as opened:
        yield opened
