"""Processes that die or restart under an open page: the page goes on by itself, with the job's result at the end."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, SEEN_WITHIN_S
from tests.support.browser import Window
from tests.support.servers import SECRET, start_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

NEW_SECRET = "another-secret-of-the-tests-longer-than-32-bytes"

# Collects every text that was ever struck out; a void text may be replaced between two looks.
_WATCH_VOID = """() => {
  window.voided = [];
  const element = document.getElementById("void");
  const note = () => element.textContent && window.voided.push(element.textContent);
  new MutationObserver(note).observe(element, { childList: true, characterData: true, subtree: true });
}"""


async def test_a_gateway_killed_and_restarted_on_its_port(window: Window, demo: Demo) -> None:
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(8)
    await demo.gateway.kill()
    demo.proxy.cut()
    await tab.connection_is("reconnecting")
    await demo.gateway.start_again()
    await tab.expect_whole(job_id)


async def test_a_gateway_restarted_by_a_deploy_says_so(window: Window, demo: Demo) -> None:
    tab = await open_demo(window, demo)
    job_id = await tab.start(sentences=20)
    await tab.reaches(8)
    await demo.gateway.stop()
    await tab.connection_is("reconnecting")
    await demo.gateway.start_again()
    await tab.expect_whole(job_id)


async def test_the_text_of_a_lost_worker_is_struck_out_and_replaced(window: Window, demo: Demo) -> None:
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(10)
    await tab.page.evaluate(_WATCH_VOID)
    await demo.worker.kill()
    lost = await tab.text()
    async with start_worker(demo.database_url, {"OUTLIVE_LEASE_SECONDS": "2"}, providers=demo.providers):
        await expect(tab.page.locator("#attempt")).to_have_text("2", timeout=SEEN_WITHIN_MS)
        await expect(tab.page.locator("#notice")).to_contain_text("Attempt 2")
        await tab.expect_whole(job_id)
    voided = await tab.page.evaluate("window.voided")
    assert voided
    assert voided[0].startswith(lost)
    await expect(tab.page.locator("#void")).to_be_empty()
    await expect(tab.page.locator("#notice")).to_have_text("Attempt 2 finished the job.")


async def test_a_secret_changed_in_peace_is_not_noticed(window: Window, demo: Demo) -> None:
    """The new secret signs, the old one still verifies: OUTLIVE_SECRET=NEW,OLD."""
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(8)
    await demo.gateway.kill()
    demo.gateway.environment["OUTLIVE_SECRET"] = f"{NEW_SECRET},{SECRET}"
    await demo.gateway.start_again()
    await tab.expect_whole(job_id)


async def test_a_secret_thrown_away_ends_with_a_sentence_and_a_page_that_works(window: Window, demo: Demo) -> None:
    """All tokens and cookies are void, so this browser is a stranger: it may not read on, but it may begin anew."""
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(8)
    await demo.gateway.kill()
    demo.gateway.environment["OUTLIVE_SECRET"] = NEW_SECRET
    await demo.gateway.start_again()
    await tab.connection_is("refused")
    await expect(tab.page.locator("#reader-problem")).to_contain_text("belongs to another browser")
    await expect(tab.page.locator(f"#jobs li[data-job='{job_id}'] .badge")).to_have_text(
        "gone", timeout=SEEN_WITHIN_MS
    )
    newer_id = await tab.start("A new job. Of a new user.", 1)
    await tab.expect_whole(newer_id)
    await tab.page.click(f"#jobs li[data-job='{job_id}'] button")
    await expect(tab.page.locator(f"#jobs li[data-job='{job_id}']")).to_have_count(0)


async def test_a_page_opened_while_the_gateway_is_away_finds_it_later(window: Window, demo: Demo) -> None:
    tab = await open_demo(window, demo)
    job_id = await tab.start()
    await tab.reaches(4)
    # The page itself has to come from somewhere: the API alone is cut off.
    await window.context.route("**/api/**", lambda route: route.abort("connectionrefused"))
    await tab.page.reload()
    await tab.connection_is("reconnecting")
    await window.context.unroute("**/api/**")
    await tab.expect_whole(job_id)
    row = tab.page.locator(f"#jobs li[data-job='{job_id}'] .badge")
    await until(lambda: row.is_visible(), SEEN_WITHIN_S, what="the job in the list")
