"""What goes in comes out, as text and nothing else: long, hostile, typed, dropped, by mouse or by keys alone."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import SEEN_WITHIN_MS, is_creation
from tests.support.browser import Window

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

MOST_CHARACTERS = 1_000_000  # docs/protocol.md 9
# Three seconds of work alone; the rest is for a busy machine.
LONG_WITHIN_MS = 50_000

HOSTILE = [
    '<img src="x" onerror="window.hit = 1"> opens this text.',
    "<script>window.hit = 2</script> follows it at once.",
    "&lt;b&gt; and &amp; stay as they are written here.",
    "A family \U0001f469\u200d\U0001f469\u200d\U0001f467 waves a flag \U0001f1fa\U0001f1f3 on the pier.",
    "\u0633\u0641\u064a\u0646\u0629 123 \u0628\u062d\u0631 \u0645\u064a\u0646\u0627\u0621 \u0635\u0628\u0627\u062d.",
    "An override \u202egnorw eht\u202c turns the words around.",
    "</div></body><style>*{display:none}</style> closes nothing at all.",
    "{{constructor}} ${window.hit = 3} %s %n are only signs.",
    "javascript:window.hit=4 is no link in this sentence.",
    "Combining marks e\u0301\u0302\u0303 pile up on one letter.",
]

_DROP = """([name, characters]) => {
  const sentence = "\\u041a\\u043e\\u0440\\u0430\\u0431\\u043b\\u044c NNNNNNN came into the harbour at dawn. ";
  let text = "";
  for (let n = 0; text.length < characters; n++) text += sentence.replace("NNNNNNN", String(n).padStart(7, "0"));
  const transfer = new DataTransfer();
  transfer.items.add(new File([text.slice(0, characters)], name, { type: "text/plain" }));
  const drop = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.getElementById("drop").dispatchEvent(drop);
}"""


@pytest.mark.timeout(120)
async def test_a_dropped_file_of_a_million_characters(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.evaluate(_DROP, ["ships.txt", MOST_CHARACTERS])
    await expect(tab.page.locator("#held-name")).to_have_text("ships.txt")
    await expect(tab.page.locator("#counter")).to_have_text("1,000,000 of 1,000,000 characters")
    job_id = await tab.begin(3)
    await expect(tab.page.locator("#job-status")).to_have_text("succeeded", timeout=LONG_WITHIN_MS)
    assert "\u041a\u043e\u0440\u0430\u0431\u043b\u044c" in await tab.expect_whole(job_id)
    await expect(tab.page.locator(f"#jobs li[data-job='{job_id}'] .title")).to_have_text("ships.txt")


async def test_what_cannot_be_taken_is_said_before_it_is_sent(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    problem = tab.page.locator("#composer-problem")
    await tab.page.click("#start")
    await expect(problem).to_contain_text("There is no text yet")
    await tab.page.fill("#text", " \n\t ")
    await tab.page.click("#start")
    await expect(problem).to_contain_text("There is no text yet")
    await tab.page.evaluate(_DROP, ["ships.txt", MOST_CHARACTERS + 1])
    await expect(tab.page.locator("#counter")).to_contain_text("1 too many")
    await tab.page.click("#start")
    await expect(problem).to_contain_text("too long")
    await tab.page.set_input_files(
        "#file", {"name": "picture.png", "mimeType": "image/png", "buffer": b"\x89PNG\x00\x00"}
    )
    await expect(problem).to_contain_text("no .txt or .md file")
    await tab.page.click("#held-drop")
    await expect(tab.page.locator("#text")).to_be_focused()
    await tab.page.fill("#text", "A text.")
    await tab.page.fill("#sentences", "51")
    await tab.page.click("#start")
    await expect(problem).to_contain_text("from 1 to 50")
    await expect(tab.page.locator("#jobs li")).to_have_count(0)


async def test_hostile_text_stays_text(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    job_id = await tab.start("\n\n".join(HOSTILE), 50)
    shown = await tab.expect_whole(job_id)
    assert all(sentence in shown for sentence in HOSTILE)
    title = tab.page.locator(f"#jobs li[data-job='{job_id}'] .title")
    await expect(title).to_contain_text("<img src=")
    await expect(tab.page.locator("#reader-title")).to_contain_text("<img src=")
    await tab.page.reload()
    assert await tab.expect_whole(job_id) == shown
    assert await tab.page.evaluate("window.hit") is None
    assert await tab.page.locator("img, #text-output script, #text-output style").count() == 0
    assert window.errors == []


async def test_a_document_and_a_file_fill_the_form(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.select_option("#documents", "LICENSE")
    await expect(tab.page.locator("#text")).to_have_value(re.compile("Apache License"))
    old_windows = "Caf\u00e9 at the quay.\r\nIt opens at dawn.".encode("windows-1252")
    await tab.page.set_input_files("#file", {"name": "old.txt", "mimeType": "text/plain", "buffer": old_windows})
    await expect(tab.page.locator("#text")).to_have_value("Caf\u00e9 at the quay.\nIt opens at dawn.")
    await expect(tab.page.locator("#documents")).to_have_value("")
    await tab.page.select_option("#documents", "LICENSE")
    await expect(tab.page.locator("#text")).to_have_value(re.compile("Apache License"))
    await tab.page.fill("#text", "")
    await tab.page.select_option("#documents", "LICENSE")
    await expect(tab.page.locator("#text")).to_have_value(re.compile("Apache License"))


async def test_two_clicks_make_one_job(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.fill("#text", "One sentence. And another.")
    await tab.page.dblclick("#start")
    await expect(tab.page.locator("#jobs .badge")).to_have_text("succeeded", timeout=SEEN_WITHIN_MS)
    jobs = await (await tab.page.context.request.get(f"{tab.url}/api/ai/jobs")).json()
    assert len(jobs["jobs"]) == 1


async def test_a_failed_job_says_why(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    job_id = await tab.post({"kind": "summarize", "input": {"text": " \n "}, "metadata": {"title": "An empty page"}})
    await tab.page.goto(f"{tab.url}/#job={job_id}")
    await tab.status_is("failed")
    await expect(tab.page.locator("#reader-problem")).to_contain_text("The job failed: ")
    await expect(tab.page.locator("#announcer")).not_to_be_empty()
    await tab.status_of(job_id, "failed")


async def test_by_keys_alone(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    keys = tab.page.keyboard
    await keys.press("Tab")
    await expect(tab.page.locator(".skip")).to_be_focused()
    await expect(tab.page.locator(".skip")).to_be_in_viewport()
    await keys.press("Tab")
    await expect(tab.page.locator("#text")).to_be_focused()
    await keys.type("The first sentence is typed. The second one too.")
    for wanted in ("file", "documents", "kind", "sentences", "start"):
        await keys.press("Tab")
        await expect(tab.page.locator(f"#{wanted}")).to_be_focused()
        assert await has_focus_ring(tab.page), wanted
    async with tab.page.expect_response(is_creation) as answer:
        await keys.press("Enter")
    job_id = await tab.opened(await answer.value)
    await expect(tab.page.locator("#reader-title")).to_be_focused()
    await tab.expect_whole(job_id)
    await keys.press("Tab")
    await expect(tab.page.locator("#attempts-summary")).to_be_focused()
    assert await has_focus_ring(tab.page)
    await keys.press("Tab")
    await expect(tab.page.locator("#sheet")).to_be_focused()
    await keys.press("Tab")
    await expect(tab.page.locator("#copy")).to_be_focused()


async def test_control_and_enter_starts_and_enter_opens_a_row(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    first_id = await tab.start("The older one. It has two.", 1)
    await tab.page.fill("#text", "The newer one. It has two as well.")
    await tab.page.focus("#text")
    async with tab.page.expect_response(is_creation) as answer:
        await tab.page.keyboard.press("Control+Enter")
    second_id = await tab.opened(await answer.value)
    await tab.page.focus(f"#jobs li[data-job='{first_id}'] a")
    await tab.page.keyboard.press("Enter")
    assert "older" in await tab.expect_whole(first_id)
    await tab.page.go_back()
    assert "newer" in await tab.expect_whole(second_id)


async def has_focus_ring(page: Page) -> bool:
    style = "getComputedStyle(document.activeElement)"
    return bool(await page.evaluate(f"{style}.outlineStyle !== 'none' && parseFloat({style}.outlineWidth) >= 2"))
