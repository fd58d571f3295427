"""Retry on the page: a new job of an old wish, once for each wish, and words for every refusal."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from playwright.async_api import Request, Route, expect

from schema.tenants import Terms, find_tenant, set_terms
from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, SEEN_WITHIN_S, DemoPage
from tests.support.browser import Window
from tests.support.jobs import opened
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

RETRIES = "**/api/ai/jobs/*/retry"
# White space has no sentence to choose, so this fails at once and for good.
FAILING = {"kind": "summarize", "input": {"text": " "}, "metadata": {"title": "An empty page"}}


async def open_failed(window: Window, demo: Demo) -> tuple[DemoPage, str]:
    """A tab with a failed job open, and its id."""
    tab = await open_demo(window, demo)
    await tab.is_ready()
    job_id = await tab.post(FAILING)
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    await tab.status_is("failed")
    await expect(tab.page.locator("#retry")).to_be_visible()
    return tab, job_id


def note_keys(tab: DemoPage) -> list[str]:
    """Fills with the idempotency key of each retry that the page asks for."""
    keys: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith("/retry"):
            keys.append(request.headers["idempotency-key"])

    tab.page.on("request", note)
    return keys


async def retries_of(tab: DemoPage, job_id: str) -> list[str]:
    """Ids of the jobs that are this one again, as the gateway lists them."""
    answer = await tab.page.context.request.get(f"{tab.url}/api/ai/jobs?limit=200")
    return [job["job_id"] for job in (await answer.json())["jobs"] if job["retry_of"] == job_id]


async def opens_retry(tab: DemoPage, job_id: str) -> str:
    """The page opens the one job that is this one again; returns its id."""
    await until(lambda: not tab.page.url.endswith(job_id), SEEN_WITHIN_S, what="another job in the address")
    (new_id,) = await retries_of(tab, job_id)
    assert tab.page.url.endswith(f"#job={new_id}")
    return new_id


async def refused_with(tab: DemoPage, words: str | re.Pattern[str]) -> None:
    """The page says so, for eyes and ears, and the button stays where it was, with the focus."""
    await expect(tab.page.locator("#check")).to_have_text(words, timeout=SEEN_WITHIN_MS)
    await expect(tab.page.locator("#announcer")).to_have_text(words)
    await expect(tab.page.locator("#retry")).to_have_text("Retry")
    await expect(tab.page.locator("#retry")).to_have_attribute("aria-disabled", "false")
    await expect(tab.page.locator("#retry")).to_be_focused()


async def test_a_cancelled_job_again_to_its_result(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start()
    await tab.reaches(8)
    await expect(tab.page.locator("#retry")).to_be_hidden()
    await tab.page.click("#cancel")
    await tab.status_is("cancelled")
    title = await tab.page.locator("#reader-title").text_content()
    await tab.page.click("#retry")
    new_id = await opens_retry(tab, job_id)
    await expect(tab.page.locator("#reader-title")).to_have_text(title or "")
    await expect(tab.page.locator("#again")).to_have_text(
        re.compile(r"Again of the job of .+, which was cancelled\.")
    )
    await tab.expect_whole(new_id)
    await expect(tab.page.locator("#retry")).to_be_hidden()
    await tab.status_of(job_id, "cancelled")
    await expect(tab.page.locator(f"#jobs li[data-job='{new_id}'] .again")).to_have_text(re.compile("again of .+"))
    await tab.page.click("#again a")
    await tab.status_is("cancelled")
    await expect(tab.page.locator("#again")).to_have_text(re.compile(r"Tried again: the job of .+\."))
    await tab.page.click("#again a")
    await tab.expect_whole(new_id)


async def test_a_failed_job_by_keys_alone(window: Window, shared_demo: Demo) -> None:
    tab, job_id = await open_failed(window, shared_demo)
    await tab.page.focus("#sheet")
    await tab.page.keyboard.press("Tab")
    await expect(tab.page.get_by_role("button", name="Retry", exact=True)).to_be_focused()
    await tab.page.keyboard.press("Enter")
    new_id = await opens_retry(tab, job_id)
    await expect(tab.page.locator("#reader-title")).to_be_focused()
    await tab.status_of(new_id, "failed")
    assert (await tab.job(new_id))["retry_of"] == job_id
    assert window.errors == []


async def test_a_double_click_makes_one_job_and_cancels_none(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start()
    await tab.reaches(8)
    keys = note_keys(tab)
    await tab.page.dblclick("#cancel")
    await tab.status_is("cancelled")
    assert keys == []
    await tab.page.dblclick("#retry")
    new_id = await opens_retry(tab, job_id)
    assert len(keys) == 1
    await tab.expect_whole(new_id)


async def test_a_reload_in_mid_request_keeps_the_wish(window: Window, shared_demo: Demo) -> None:
    tab, job_id = await open_failed(window, shared_demo)
    keys = note_keys(tab)
    recorded, reloaded = anyio.Event(), anyio.Event()

    async def lose_the_answer(route: Route) -> None:
        await route.fetch()
        recorded.set()
        await reloaded.wait()
        await route.abort()

    await tab.page.route(RETRIES, lose_the_answer, times=1)
    await tab.page.click("#retry")
    await expect(tab.page.locator("#retry")).to_have_text("Retrying…")
    await expect(tab.page.locator("#retry")).to_have_attribute("aria-disabled", "true")
    await recorded.wait()
    await tab.page.reload()
    reloaded.set()
    await tab.status_is("failed")
    await tab.page.click("#retry")
    new_id = await opens_retry(tab, job_id)
    assert keys == [keys[0]] * 2
    # The wish is fulfilled, so the next one is another.
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    await expect(tab.page.locator("#again")).to_have_text(re.compile(r"Tried again: "))
    await tab.page.click("#retry")
    await until(lambda: len(set(keys)) == 2, SEEN_WITHIN_S, what="a key of its own for another wish")
    await until(lambda: not tab.page.url.endswith((job_id, new_id)), SEEN_WITHIN_S, what="a second new job")
    assert len(await retries_of(tab, job_id)) == 2


async def test_offline_it_says_so_and_nothing_is_done_twice(window: Window, shared_demo: Demo) -> None:
    tab, job_id = await open_failed(window, shared_demo)
    keys = note_keys(tab)
    await window.context.set_offline(True)
    await tab.page.click("#retry")
    await refused_with(tab, "This device is offline. Press Retry when it is back; no second job comes of it.")
    await window.context.set_offline(False)
    await tab.page.route(RETRIES, lambda route: route.abort())
    await tab.page.click("#retry")
    await refused_with(tab, re.compile("The gateway does not answer"))
    await tab.page.unroute(RETRIES)
    await tab.page.click("#retry")
    await opens_retry(tab, job_id)
    assert keys == [keys[0]] * 3


async def test_a_full_queue_says_when_to_come_back(window: Window, demo: Demo) -> None:
    tab, job_id = await open_failed(window, demo)
    async with opened(demo.database_url) as database:
        tenant = await find_tenant(database, "demo")
        await set_terms(database, tenant, Terms(max_queued=0))
        await tab.page.click("#retry")
        when = r"Press Retry again in (a second|\d seconds)\."
        await refused_with(tab, re.compile(f"Too many jobs are waiting already, so nothing was started. {when}"))
        await set_terms(database, tenant, Terms())
    await tab.page.click("#retry")
    await opens_retry(tab, job_id)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (402, "quota_exceeded", "The money for this is used up"),
        (409, "already_finished", "This job has succeeded, so there is nothing to try again"),
        (409, "idempotency_key_reused", "Press Retry once more"),
        (410, "erased", "is erased or past its retention"),
        (403, "forbidden", "may not start jobs"),
        (422, "cost_limit_required", "What the gateway itself says."),
        (503, "draining", "What the gateway itself says. Press Retry again in 90 seconds."),
    ],
)
async def test_every_refusal_has_words(window: Window, shared_demo: Demo, status: int, code: str, words: str) -> None:
    """Answers that the gateway gives in a state that is hard to reach, or will give once it erases."""
    tab, job_id = await open_failed(window, shared_demo)
    keys = note_keys(tab)
    answer = {"status": status, "code": code, "detail": "What the gateway itself says."}
    headers = {"Retry-After": "90"} if status == 503 else {}
    await tab.page.route(RETRIES, lambda route: route.fulfill(status=status, headers=headers, json=answer))
    await tab.page.click("#retry")
    await refused_with(tab, re.compile(re.escape(words)))
    await tab.page.unroute(RETRIES)
    await tab.page.click("#retry")
    await opens_retry(tab, job_id)
    # A key that is in conflict would be so for ever.
    assert len(set(keys)) == (2 if status == 409 else 1)


async def test_who_has_gone_on_is_not_taken_back(window: Window, shared_demo: Demo) -> None:
    tab, job_id = await open_failed(window, shared_demo)
    other_id = await tab.start("One sentence. And another.", 1)
    await tab.expect_whole(other_id)
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    async with held(tab) as let_go:
        await tab.page.click("#retry")
        await tab.page.click(f"#jobs li[data-job='{other_id}'] a")
        await tab.status_is("succeeded")
        let_go()
        row = tab.page.locator("#jobs li", has=tab.page.locator(".again", has_text="again of"))
        await expect(row).to_have_count(1, timeout=SEEN_WITHIN_MS)
    assert tab.page.url.endswith(f"#job={other_id}")
    assert len(await retries_of(tab, job_id)) == 1


@asynccontextmanager
async def held(tab: DemoPage) -> AsyncIterator[Callable[[], None]]:
    """Retries wait before they are sent, until what is yielded is called."""
    go = anyio.Event()

    async def wait(route: Route) -> Any:
        await go.wait()
        await route.continue_()

    await tab.page.route(RETRIES, wait)
    yield go.set
    await tab.page.unroute(RETRIES)
