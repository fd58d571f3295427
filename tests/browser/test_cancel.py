"""Cancel on the page, by mouse and by keys, and what it says meanwhile; and a document section by section."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Request, expect

from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, DemoPage, is_creation
from tests.support.browser import Window

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

CANCELS = "**/api/ai/jobs/*/cancel"
DOCUMENT = "\n\n".join(
    f"# Part {name}\n\nThe {name} of the harbour meets the sea at dawn. It turns when the tide does."
    for name in ("crane", "tug", "pilot", "lamp")
)


async def expect_cancelled(tab: DemoPage, job_id: str) -> None:
    """The page, its list and the gateway agree, and the text that had come stays."""
    await tab.status_is("cancelled")
    await tab.connection_is("ended")
    await tab.status_of(job_id, "cancelled")
    await expect(tab.page.locator("#notice")).to_have_text("This job was cancelled.")
    await expect(tab.page.locator("#announcer")).to_have_text("The job was cancelled.")
    await expect(tab.page.locator("#cancel")).to_be_hidden()
    job = await tab.job(job_id)
    assert (job["status"], job["last_event_id"]) == ("cancelled", await tab.last_event())


async def test_a_running_job_by_keys_alone(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start(sentences=40)
    await tab.reaches(10)
    await expect(tab.page.locator("#reader-title")).to_be_focused()
    await tab.page.keyboard.press("Tab")
    await expect(tab.page.get_by_role("button", name="Cancel", exact=True)).to_be_focused()
    await tab.page.keyboard.press("Enter")
    await expect_cancelled(tab, job_id)
    # The button is gone, and whoever stood on it is not thrown to the top of the page.
    await expect(tab.page.locator("#reader-title")).to_be_focused()
    shown = await tab.text()
    assert shown
    await tab.page.reload()
    await expect_cancelled(tab, job_id)
    assert await tab.text() == shown


async def test_a_job_that_waits(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    job_id = await tab.post({"kind": "summarize", "input": {"text": "One. Two."}, "run_at": later})
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    await tab.status_is("scheduled")
    await tab.page.click("#cancel")
    await expect_cancelled(tab, job_id)


async def test_one_wish_is_sent_once_and_again_after_no_answer(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith("/cancel"):
            sent.append(request.method)

    tab.page.on("request", note)
    await tab.page.route(CANCELS, lambda route: route.abort())
    job_id = await tab.start(sentences=40)
    button = tab.page.locator("#cancel")
    await button.click()
    await expect(tab.page.locator("#check")).to_contain_text("The gateway does not answer")
    await expect(button).to_have_text("Cancel")
    await tab.page.unroute(CANCELS)
    await button.dblclick()
    await expect_cancelled(tab, job_id)
    assert sent == ["POST", "POST"]
    await expect(tab.page.locator("#check")).to_be_empty()


async def test_while_it_asks_it_says_so_and_keeps_the_focus(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.route(CANCELS, lambda route: route.fulfill(status=202, json={}))
    await tab.start(sentences=40)
    await tab.page.click("#cancel")
    await expect(tab.page.locator("#cancel")).to_have_text("Cancelling…")
    await expect(tab.page.locator("#cancel")).to_have_attribute("aria-disabled", "true")
    await expect(tab.page.locator("#cancel")).to_be_focused()
    await expect(tab.page.locator("#announcer")).to_have_text("Asked to cancel.")


async def test_a_document_section_by_section(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    await tab.page.fill("#text", DOCUMENT)
    await tab.page.select_option("#kind", "analyze")
    await expect(tab.page.locator("#sentences")).to_be_hidden()
    async with tab.page.expect_response(is_creation) as answer:
        await tab.page.click("#start")
    job_id = await tab.opened(await answer.value)
    label = tab.page.locator("#progress-label")
    await expect(label).to_have_text(re.compile("Section [234] of 4: Part "), timeout=SEEN_WITHIN_MS)
    await expect(tab.page.get_by_role("progressbar", name="Progress")).to_be_visible()
    shown = await tab.expect_whole(job_id)
    headings = ["Part crane", "Part tug", "Part pilot", "Part lamp", "Synthesis"]
    places = [f"\n\n{shown}".find(f"\n\n{heading}\n\n") for heading in headings]
    assert min(places) == 0
    assert places == sorted(places)
    await expect(label).to_be_hidden()
