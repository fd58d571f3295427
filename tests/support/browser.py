"""A real Chromium, by Playwright: the system's own, or one that is installed where that is possible."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A download of some 150 MB, and unpacking; on a slow line that takes minutes.
INSTALL_WITHIN_S = 600


@dataclass
class Window:
    """A browser context of one test, with no cookies and no storage. `errors` are what its pages complained of."""

    context: BrowserContext
    errors: list[str] = field(default_factory=list)

    async def open_page(self, url: str | None = None) -> Page:
        """A new tab. Its console errors and its uncaught exceptions go into `errors`."""
        page = await self.context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if url:
            await page.goto(url)
        return page

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")


@asynccontextmanager
async def open_browser(executable: str) -> AsyncIterator[Browser]:
    """Starts Chromium; `executable` is a path, or "" for Playwright's own."""
    # Without its sandbox, since that refuses root; without /dev/shm, which is 64 MB in many containers.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable or None, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_window(browser: Browser) -> AsyncIterator[Window]:
    """A fresh context, closed with the block."""
    context = await browser.new_context()
    try:
        yield Window(context)
    finally:
        await context.close()


@cache
def find_or_install() -> str | None:
    """What `open_browser` takes, or None where there is no Chromium and none can be had."""
    # One at a time: the test processes of a session all come here at once.
    with (Path(tempfile.gettempdir()) / f"outlive-chromium-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _on_path() or _from_system() or _from_playwright()


def _on_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def _from_system() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _try(["apt-get", "update", "-q"], quiet)
    _try(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], quiet)
    return _on_path()


def _from_playwright() -> str | None:
    return "" if _try([sys.executable, "-m", "playwright", "install", "chromium"], dict(os.environ)) else None


def _try(command: list[str], environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=INSTALL_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
