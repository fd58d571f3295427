"""Pictures of the page, taken of the real demo: `python -m tests.browser.shots` writes those of docs/ anew.

`--all FOLDER` takes every state in light, dark and on a phone instead, to look at before a change is shown.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import click
from playwright.async_api import Browser, ViewportSize, expect

from tests.browser.conftest import Demo, run_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, DemoPage
from tests.support.browser import find_or_install, open_browser
from tests.support.databases import Databases
from tests.support.postgres import ROOT, HeldPostgres
from tests.support.servers import start_worker

DESK = ViewportSize(width=1280, height=880)
PHONE = ViewportSize(width=390, height=844)
# The pictures are looked at on screens of twice the density.
PIXELS = 2
# Plain prose, written for the pictures.
REPORT = Path(__file__).parent / "harbour-report.txt"
WORDS_PER_SECOND = 16


@contextmanager
def a_database() -> Iterator[str]:
    server = HeldPostgres(fast=True)
    server.start()
    databases = Databases(server.address().url, uuid.uuid4().hex)
    try:
        yield databases.create()
    finally:
        databases.close()
        server.close()


@asynccontextmanager
async def a_tab(browser: Browser, demo: Demo) -> AsyncIterator[DemoPage]:
    context = await browser.new_context(viewport=DESK, device_scale_factor=PIXELS, reduced_motion="reduce")
    try:
        page = await context.new_page()
        await page.goto(demo.url)
        yield DemoPage(page, demo.url)
    finally:
        await context.close()


async def start_document(tab: DemoPage, name: str, sentences: int) -> str:
    """A job of one of the project's own documents, chosen from the list; its id."""
    await tab.page.select_option("#documents", name)
    await expect(tab.page.locator("#counter")).not_to_have_text("0 of 1,000,000 characters")
    return await tab.begin(sentences)


async def take(tab: DemoPage, folder: Path, state: str) -> None:
    """The page in every look."""
    await take_on_desk(tab, folder, state)
    await take_on_phone(tab, folder / f"{state}-phone.png")


async def take_on_desk(tab: DemoPage, folder: Path, state: str) -> None:
    """The page as it is, light and dark: also what a fresh tab would not show."""
    await tab.page.evaluate("scrollTo(0, 0)")
    await tab.page.emulate_media(color_scheme="light")
    await tab.page.screenshot(path=folder / f"{state}.png")
    await tab.page.emulate_media(color_scheme="dark")
    await tab.page.screenshot(path=folder / f"{state}-dark.png")
    await tab.page.emulate_media(color_scheme="light")


async def take_on_phone(tab: DemoPage, path: Path) -> None:
    """The same job on the same user's phone, with the text in sight where there is one."""
    browser = tab.page.context.browser
    assert browser is not None
    stored = await tab.page.context.storage_state()
    context = await browser.new_context(
        viewport=PHONE, device_scale_factor=PIXELS, is_mobile=True, has_touch=True, storage_state=stored
    )
    try:
        phone = DemoPage(await context.new_page(), tab.url)
        await phone.page.goto(tab.page.url)
        if await tab.page.locator("#facts").is_visible():
            await phone.reaches(await tab.last_event())
            await phone.page.locator(".reader").evaluate("element => element.scrollIntoView()")
        await phone.page.screenshot(path=path)
    finally:
        await context.close()


async def fill_the_list(tab: DemoPage) -> None:
    """Some ended jobs, one of which failed: white space has no sentence to choose."""
    empty = {"kind": "summarize", "input": {"text": " "}, "metadata": {"title": "An empty page"}}
    failing_id = await tab.post(empty)
    await tab.page.reload()
    await tab.status_of(failing_id, "failed")
    for name in ("CHANGELOG.md", "architecture.md", "README.md"):
        await tab.status_of(await start_document(tab, name, 1), "succeeded")


async def take_for_docs(tab: DemoPage, demo: Demo) -> None:
    """A running job that has lost a worker, and goes on."""
    await tab.page.set_input_files("#file", REPORT)
    await expect(tab.page.locator("#text")).not_to_be_empty()
    await tab.begin(12)
    await tab.reaches(60)
    await demo.worker.kill()
    async with start_worker(demo.database_url, providers=demo.providers):
        await attempt_is(tab, 2)
        await tab.page.click("#attempts-summary")
        await tab.reaches(await tab.last_event() + 70)
        await take(tab, ROOT / "docs", "page")


async def attempt_is(tab: DemoPage, number: int) -> None:
    await expect(tab.page.locator("#attempt")).to_have_text(str(number), timeout=SEEN_WITHIN_MS)


async def take_all(tab: DemoPage, demo: Demo, folder: Path) -> None:
    """Running, waiting for the network, with a second attempt, finished, failed, cancelled, tried again."""
    await start_document(tab, "protocol.md", 30)
    await tab.reaches(60)
    await take(tab, folder, "running")
    demo.proxy.freeze()
    demo.proxy.cut()
    await tab.connection_is("reconnecting")
    await take_on_desk(tab, folder, "reconnecting")
    demo.proxy.thaw()
    await tab.connection_is("live")
    await demo.worker.kill()
    async with start_worker(demo.database_url, providers=demo.providers):
        await attempt_is(tab, 2)
        await tab.page.click("#attempts-summary")
        await tab.reaches(await tab.last_event() + 40)
        await take(tab, folder, "second-attempt")
        await tab.page.click("#attempts-summary")
        await expect(tab.page.locator("#job-status")).to_have_text("succeeded", timeout=60_000)
        await take(tab, folder, "finished")
        await take_again(tab, folder)
    await tab.page.fill("#text", "")
    await tab.page.click("#start")
    await tab.page.locator("#jobs a", has_text="failed").click()
    await tab.status_is("failed")
    await take(tab, folder, "failed")


async def take_again(tab: DemoPage, folder: Path) -> None:
    """A cancelled job, a retry that is refused, and the new job of one that is not."""
    await start_document(tab, "protocol.md", 30)
    await tab.reaches(60)
    await tab.page.click("#cancel")
    await tab.status_is("cancelled")
    await take(tab, folder, "cancelled")
    await tab.page.context.set_offline(True)
    await tab.page.click("#retry")
    await expect(tab.page.locator("#check")).to_contain_text("offline")
    await take_on_desk(tab, folder, "refused")
    await tab.page.context.set_offline(False)
    await tab.page.click("#retry")
    await expect(tab.page.locator("#again")).to_be_visible()
    await tab.reaches(60)
    await take(tab, folder, "again")


async def shoot(everything: Path | None) -> None:
    with a_database() as url, tempfile.TemporaryDirectory() as folder:
        async with (
            run_demo(url, Path(folder), WORDS_PER_SECOND) as demo,
            open_browser(find_or_install() or "") as browser,
            a_tab(browser, demo) as tab,
        ):
            await tab.is_ready()
            if everything:
                await take(tab, everything, "empty")
            await fill_the_list(tab)
            await (take_all(tab, demo, everything) if everything else take_for_docs(tab, demo))


@click.command()
@click.option(
    "--all", "everything", type=click.Path(file_okay=False, path_type=Path), help="Every state, into FOLDER."
)
def main(everything: Path | None) -> None:
    """Take the pictures of docs/ anew."""
    anyio.run(shoot, everything)


if __name__ == "__main__":
    main()
