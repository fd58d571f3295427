"""However often a reader goes away and comes back, it ends with the job's result, character by character."""

from __future__ import annotations

import time

import jwt
import pytest
from playwright.async_api import expect

from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, DemoPage, use_token
from tests.support.browser import Window
from tests.support.servers import SECRET
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_reloads_in_mid_stream_lose_and_double_nothing(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start(sentences=40)
    seen = []
    for event in (0, 3, 9, 10, 30, 90):
        await tab.reaches(event)
        seen.append(await tab.text())
        assert await tab.page.text_content("#job-status") != "succeeded", "the job was too fast to be reloaded"
        await tab.page.reload()
    result = await tab.expect_whole(job_id)
    assert all(result.startswith(text) for text in seen)
    await tab.page.reload()
    await tab.expect_whole(job_id)
    assert window.errors == []


async def test_a_closed_tab_finds_its_job_in_the_list(window: Window, shared_demo: Demo) -> None:
    first = await open_demo(window, shared_demo)
    job_id = await first.start()
    await first.reaches(5)
    await first.page.close()
    second = await open_demo(window, shared_demo)
    newer_id = await second.start("Another one. It has two sentences.", 2)
    await second.expect_whole(newer_id)
    row = second.page.locator(f"#jobs li[data-job='{job_id}']")
    await row.locator("a").click()
    result = await second.expect_whole(job_id)
    assert result.startswith("Sentence number ")
    await expect(row.locator(".badge")).to_have_text("succeeded")
    await expect(row.locator("a")).to_have_attribute("aria-current", "true")


async def test_two_tabs_show_one_job(window: Window, shared_demo: Demo) -> None:
    first = await open_demo(window, shared_demo)
    job_id = await first.start()
    await first.reaches(8)
    second = await open_demo(window, shared_demo, f"#job={job_id}")
    await second.reaches(12)
    assert await first.expect_whole(job_id) == await second.expect_whole(job_id)


async def test_a_job_made_in_one_tab_appears_in_the_other(window: Window, shared_demo: Demo) -> None:
    first = await open_demo(window, shared_demo)
    second = await open_demo(window, shared_demo)
    await expect(second.page.locator("#shelf-empty")).to_be_visible()
    job_id = await first.start("One sentence. And one more.", 1)
    row = second.page.locator(f"#jobs li[data-job='{job_id}'] .badge")
    await expect(row).to_have_text("succeeded", timeout=SEEN_WITHIN_MS)


async def test_a_cut_connection_goes_on_where_it_was(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start(sentences=40)
    for event in (4, 20):
        await tab.reaches(event)
        shared_demo.proxy.cut()
        await tab.connection_is("reconnecting")
    await tab.expect_whole(job_id)


async def test_offline_and_back(window: Window, demo: Demo) -> None:
    """The switch alone leaves an open stream alive in Chromium, so the network is frozen and then cut as well."""
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(5)
    demo.proxy.freeze()
    await window.context.set_offline(True)
    demo.proxy.cut()
    await tab.connection_is("reconnecting")
    await expect(tab.page.locator("#connection")).to_contain_text("offline")
    held = await tab.last_event()
    direct = DemoPage(tab.page, demo.gateway.url)  # Playwright's own requests do not pass Chromium's network
    await until(lambda: has_ended(direct, job_id), 20, what="the end of a job that nobody reads")
    assert await tab.last_event() == held
    demo.proxy.thaw()
    await window.context.set_offline(False)
    await tab.expect_whole(job_id)


async def has_ended(tab: DemoPage, job_id: str) -> bool:
    return bool((await tab.job(job_id))["status"] == "succeeded")


async def test_a_token_that_expires_in_mid_stream_is_renewed(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start(sentences=20)
    await tab.page.goto("about:blank")
    short = read_token(job_id, time.time() + 2)
    sent = await use_token(tab.page, short)
    await tab.page.goto(f"{shared_demo.url}/#job={job_id}")
    await until(lambda: len(sent) > 1, 20, what="a second stream")
    assert sent[0] == short != sent[1]
    await tab.expect_whole(job_id)


async def test_a_link_with_an_old_token_gets_a_new_one(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start()
    await tab.page.goto("about:blank")
    old = read_token(job_id, time.time() - 3600)
    sent = await use_token(tab.page, old)
    await tab.page.goto(f"{shared_demo.url}/#job={job_id}")
    await tab.expect_whole(job_id)
    assert sent[0] == old
    assert old not in sent[2:]


def read_token(job_id: str, expires_at: float) -> str:
    claims = {"tenant": "demo", "jobs": [job_id], "scope": ["read"], "exp": int(expires_at)}
    return jwt.encode(claims, SECRET, algorithm="HS256")


async def test_a_lost_session_is_made_again_for_the_same_user(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start()
    await tab.reaches(4)
    await window.context.clear_cookies(name="outlive_token")
    await tab.page.reload()
    await tab.expect_whole(job_id)
    assert len({cookie["value"] for cookie in await window.context.cookies()}) == 2
    newer_id = await tab.start("A new one. With the new session.", 1)
    await tab.expect_whole(newer_id)
    await expect(tab.page.locator(f"#jobs li[data-job='{job_id}']")).to_be_visible()
