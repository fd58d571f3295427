"""The page's list of attempts, live and after a reload: why each began, what its calls came to, how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import Demo, open_demo, run_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, DemoPage
from tests.faults.house import says, write_providers
from tests.support.browser import Window
from tests.support.fake_provider import FakeProvider
from tests.support.provider_scripts import SCRIPTS, Exchange, Script, failing, stepping
from tests.support.servers import start_worker

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

CHAT = {"kind": "chat", "input": says("hello"), "metadata": {"title": "A question"}}


@dataclass(frozen=True, slots=True)
class Talk:
    """The demo, and the provider that its worker speaks to."""

    demo: Demo
    fake: FakeProvider

    async def ask(self, window: Window, *scripts: Script) -> DemoPage:
        """A tab on a new `chat`, each of whose requests is met by the next script, with its attempts in view."""
        left = iter(scripts)

        async def script(exchange: Exchange) -> None:
            await next(left)(exchange)

        self.fake.scripts["m1"] = script
        tab = await open_demo(window, self.demo)
        await tab.is_ready()
        await tab.page.goto(f"{tab.url}/#job={await tab.post(CHAT)}")
        await tab.page.click("#attempts-summary")
        return tab


@pytest.fixture
async def talk(database_url: str, tmp_path: Path) -> AsyncIterator[Talk]:
    async with FakeProvider() as fake:
        providers = write_providers(tmp_path, fake_url=fake.base_url, words_per_second=100)
        async with run_demo(database_url, tmp_path, providers=providers) as demo:
            yield Talk(demo, fake)


def attempt(tab: DemoPage, number: int) -> Locator:
    return tab.page.locator("#attempt-list li").nth(number - 1)


async def ended(tab: DemoPage, number: int, end: str, *words: str) -> None:
    """The attempt of that number is shown with that end, and with those words in its story."""
    await expect(attempt(tab, number).locator(".badge")).to_have_text(end, timeout=SEEN_WITHIN_MS)
    await expect(attempt(tab, number).locator(".attempt-number")).to_have_text(f"Attempt {number}")
    for part in words:
        await expect(attempt(tab, number).locator(".attempt-story")).to_contain_text(part, timeout=SEEN_WITHIN_MS)


async def summary_is(tab: DemoPage, words: str) -> None:
    await expect(tab.page.locator("#attempts-summary")).to_have_text(words, timeout=SEEN_WITHIN_MS)


async def same_after_a_reload(tab: DemoPage) -> None:
    """The log alone tells all of it again."""
    before = await tab.page.locator("#attempts").text_content()
    await tab.page.reload()
    await expect(tab.page.locator("#attempts")).to_have_text(before or "", timeout=SEEN_WITHIN_MS)


async def test_waits_and_calls_of_unknown_end_until_an_answer(window: Window, talk: Talk) -> None:
    throttled = failing(429, "rate_limit_exceeded", retry_after="1")
    tab = await talk.ask(window, throttled, SCRIPTS["cut"], stepping("Hello.", " World."))
    await ended(tab, 1, "throttled", "when a worker took the job", "Provider call: failed.", "begins at")
    await summary_is(tab, "1 attempt: throttled")
    await ended(
        tab, 2, "unknown", "after the wait that the provider", "Provider call: without a known end.", "3 characters"
    )
    await expect(attempt(tab, 1)).to_contain_text("The job waited until")
    talk.fake.release()
    await ended(tab, 3, "running", "nobody can tell how the last call ended", "6 characters of text.")
    await summary_is(tab, "3 attempts: throttled, then unknown, then running")
    await same_after_a_reload(tab)
    talk.fake.release(2)
    await ended(tab, 3, "succeeded", "Provider call: answered.", "13 characters of text.")
    await expect(attempt(tab, 2)).to_contain_text("3 characters of text, all void.")
    await same_after_a_reload(tab)
    await summary_is(tab, "3 attempts: throttled, then unknown, then succeeded")


async def test_a_failure_that_can_pass_and_a_cancel_in_the_wait(window: Window, talk: Talk) -> None:
    tab = await talk.ask(window, failing(500, retry_after="60"))
    await ended(tab, 1, "failed", "The next attempt begins at")
    await tab.status_is("scheduled")
    await tab.page.click("#cancel")
    await tab.status_is("cancelled")
    await ended(tab, 1, "failed", "The job ended before another attempt.")
    await same_after_a_reload(tab)


async def test_a_cancel_tells_the_providers_side_apart(window: Window, talk: Talk) -> None:
    tab = await talk.ask(window, stepping("Hello.", " World."))
    talk.fake.release()
    await ended(tab, 1, "running", "6 characters of text.")
    await tab.page.click("#cancel")
    await ended(tab, 1, "cancelled", "Provider call: stopped by us, the provider may have gone on.")


async def test_a_lost_worker_by_keys_and_on_a_phone(window: Window, demo: Demo) -> None:
    tab = await open_demo(window, demo)
    await tab.page.set_viewport_size({"width": 390, "height": 844})
    job_id = await tab.start()
    await tab.reaches(10)
    await tab.page.focus("#attempts-summary")
    await tab.page.keyboard.press("Enter")
    await ended(tab, 1, "running", "when a worker took the job")
    await demo.worker.kill()
    async with start_worker(demo.database_url, {"OUTLIVE_LEASE_SECONDS": "2"}, providers=demo.providers):
        await ended(tab, 1, "lost", "all void.")
        await ended(tab, 2, "running", "the worker of the one before was lost")
        await tab.expect_whole(job_id)
    await ended(tab, 2, "succeeded")
    await summary_is(tab, "2 attempts: lost, then succeeded")
    await expect(tab.page.get_by_role("list", name="Attempts")).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_another_job_shows_its_own(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    first_id = await tab.start("One sentence. And another.", 1)
    await tab.expect_whole(first_id)
    await summary_is(tab, "1 attempt: succeeded")
    empty_id = await tab.post({"kind": "summarize", "input": {"text": " "}})
    await tab.page.goto(f"{tab.url}/#job={empty_id}")
    await summary_is(tab, "1 attempt: failed")
    await expect(tab.page.locator("#attempt-list li")).to_have_count(1)


async def test_what_the_log_says_is_text_and_nothing_else(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    mark = "<img src=x onerror='window.hit = 1'>"
    log: list[tuple[str, dict[str, Any]]] = [
        ("status", {"status": "queued"}),
        ("attempt", {"attempt": 1, "resumes_after": 0, "reason": mark}),
        ("external", {"attempt": 1, "call": 1, "outcome": mark}),
        ("attempt", {"attempt": 2, "resumes_after": 0, "reason": mark}),
    ]
    frames = "".join(
        f"event: {event}\nid: {seq}\ndata: {json.dumps(data)}\n\n" for seq, (event, data) in enumerate(log, 1)
    )
    await tab.page.route(
        re.compile("/events"), lambda route: route.fulfill(content_type="text/event-stream", body=frames)
    )
    job_id = await tab.post({"kind": "summarize", "input": {"text": "One."}})
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    await tab.page.click("#attempts-summary")
    await ended(tab, 1, mark, mark)
    await expect(tab.page.locator("#attempts img")).to_have_count(0)
    assert await tab.page.evaluate("window.hit") is None
