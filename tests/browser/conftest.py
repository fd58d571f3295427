"""The demo in parts that can be broken one by one: database, gateway, worker, and a proxy before the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.demo_page import DemoPage
from tests.support.browser import Window
from tests.support.databases import Databases
from tests.support.processes import ServerProcess
from tests.support.proxy import Proxy, proxy_to
from tests.support.servers import Gateway, fast_extractive, start_gateway, start_worker

# Fast enough for a test, slow enough to break things in the middle: 12 sentences take some 4 s.
WORDS_PER_SECOND = 100
ENVIRONMENT = {"OUTLIVE_DEMO": "1", "OUTLIVE_GRACE_SECONDS": "4"}


@dataclass(frozen=True, slots=True)
class Demo:
    """A gateway that serves the page, a worker, and a proxy to the gateway; `url` leads through the proxy."""

    database_url: str
    gateway: Gateway
    worker: ServerProcess
    providers: Path
    proxy: Proxy

    @property
    def url(self) -> str:
        return self.proxy.url


@asynccontextmanager
async def run_demo(
    database_url: str, folder: Path, words_per_second: float = WORDS_PER_SECOND, providers: Path | None = None
) -> AsyncIterator[Demo]:
    """All of it, until the block ends; `folder` takes a providers file where none is given."""
    providers = providers or fast_extractive(folder, words_per_second)
    lease = {"OUTLIVE_LEASE_SECONDS": "2"}
    async with (
        start_gateway(database_url, ENVIRONMENT) as gateway,
        start_worker(database_url, lease, providers=providers) as worker,
        proxy_to(gateway.url) as proxy,
    ):
        yield Demo(database_url, gateway, worker, providers, proxy)


@pytest.fixture(scope="session")
async def shared_demo(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[Demo]:
    """One a test process, for tests that only use it; each test is another browser there, and so another user."""
    url = databases.create()
    try:
        async with run_demo(url, tmp_path_factory.mktemp("demo")) as demo:
            yield demo
    finally:
        databases.drop(url)


@pytest.fixture
async def demo(database_url: str, tmp_path: Path) -> AsyncIterator[Demo]:
    """One a test, for tests that break it."""
    async with run_demo(database_url, tmp_path) as started:
        yield started


async def open_demo(window: Window, demo: Demo, fragment: str = "") -> DemoPage:
    """A new tab on the page."""
    return DemoPage(await window.open_page(f"{demo.url}/{fragment}"), demo.url)
