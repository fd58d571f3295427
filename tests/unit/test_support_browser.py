"""The browser fixture, on pages without a server."""

from __future__ import annotations

import pytest

from tests.support.browser import Window
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_a_page_shows_and_its_errors_are_kept(window: Window) -> None:
    page = await window.open_page("data:text/html,<h1>hello</h1><script>console.error('oh no')</script>")
    assert await page.text_content("h1") == "hello"
    await until(lambda: window.errors, what="a console error")
    await page.evaluate("setTimeout(() => { throw new Error('uncaught') })")
    await until(lambda: len(window.errors) == 2, what="an uncaught exception")
    assert "oh no" in window.errors[0]
    assert "uncaught" in window.errors[1]


async def test_two_windows_share_nothing(window: Window) -> None:
    page = await window.open_page("data:text/html,<p>empty</p>")
    assert window.errors == []
    assert await page.text_content("p") == "empty"
