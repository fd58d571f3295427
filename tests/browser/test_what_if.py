"""The menu of what a provider can do to a job: each wish comes to the end that the page promises."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import expect

from scripted_provider.behaviour import Behaviour
from scripted_provider.provider import ScriptedProvider
from scripted_provider.script import text_of
from tests.browser.conftest import Demo, open_demo, run_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, DemoPage
from tests.support.browser import Window
from tests.support.databases import Databases
from tests.support.postgres import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.timeout(120)]

WHOLE = text_of(Behaviour("well", pieces=52))


def scripted() -> ModuleType:
    """`web-demo/scripted.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("scripted", ROOT / "web-demo" / "scripted.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
async def whims(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory, anyio_backend: object
) -> AsyncIterator[Demo]:
    """The demo with its scripted providers, as `make demo` has it."""
    url = databases.create()
    folder = tmp_path_factory.mktemp("whims")
    try:
        async with ScriptedProvider() as server:
            providers = scripted().write_providers(folder, f" {server.base_url}\n", {})
            async with run_demo(url, folder, providers=providers) as demo:
                yield demo
    finally:
        databases.drop(url)


async def menu(window: Window, demo: Demo) -> DemoPage:
    tab = await open_demo(window, demo)
    await expect(tab.page.locator("#what-if")).to_be_visible(timeout=SEEN_WITHIN_MS)
    return tab


@pytest.mark.parametrize(
    ("wish", "status", "attempts"),
    [
        ("answers well", "succeeded", 1),
        ("is cut off in mid-answer", "succeeded", 2),
        ("is cut off, but goes on in the background", "succeeded", 2),
        ("ends without saying that this is the end", "succeeded", 2),
        ("falls silent", "succeeded", 2),
        ("is asked too much and says when to come back", "succeeded", 2),
        ("is down for a while", "succeeded", 3),
        ("says 200 and sends an error", "succeeded", 2),
        ("refuses", "failed", 1),
    ],
)
async def test_each_wish_comes_to_its_end(window: Window, whims: Demo, wish: str, status: str, attempts: int) -> None:
    tab = await menu(window, whims)
    await tab.page.select_option("#what-if-wish", wish)
    await expect(tab.page.locator("#what-if-then")).not_to_be_empty()
    await tab.page.click("#what-if-start")
    await expect(tab.page.locator("#reader-title")).to_have_text(f"What if the provider {wish}?")
    await expect(tab.page.locator("#origin")).to_contain_text("Follows a script")
    await expect(tab.page.locator("#job-status")).to_have_text(status, timeout=60_000, ignore_case=True)
    await expect(tab.page.locator("#attempt")).to_have_text(str(attempts))
    if status == "succeeded":
        assert await tab.text() == WHOLE


async def test_what_goes_on_in_the_background_voids_nothing(window: Window, whims: Demo) -> None:
    tab = await menu(window, whims)
    await tab.page.select_option("#what-if-wish", "is cut off, but goes on in the background")
    await tab.page.click("#what-if-start")
    longest = 0
    await expect(tab.page.locator("#reader-title")).to_contain_text("background")
    while await tab.page.locator("#job-status").text_content() != "succeeded":
        now = len(await tab.text())
        assert now >= longest, "text that was there is gone"
        longest = now
        await tab.page.wait_for_timeout(50)
        if longest == len(WHOLE):
            break
    await expect(tab.page.locator("#attempt")).to_have_text("2")


async def test_by_keys_alone_and_nobody_s_default(window: Window, whims: Demo) -> None:
    tab = await menu(window, whims)
    # Without a model of one's own the form offers none, however scripted another one is.
    assert await tab.page.locator("#kind option[value=chat]").get_attribute("disabled") is not None
    await tab.page.focus("#what-if-wish")
    await tab.page.keyboard.press("End")
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator("#reader-title")).to_have_text("What if the provider refuses?")
    await expect(tab.page.locator("#job-status")).to_have_text("failed", timeout=SEEN_WITHIN_MS, ignore_case=True)


async def test_without_a_scripted_provider_there_is_no_menu(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    await expect(tab.page.locator("#what-if")).to_be_hidden()
