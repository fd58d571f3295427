"""The page for every eye and ear: names, live regions, contrast, a phone, and a policy that nothing offends."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.conftest import Demo, open_demo
from tests.browser.demo_page import DemoPage
from tests.support.browser import Window
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

# WCAG 2.2, 1.4.3: large is from 24 px, or from 18.66 px where bold.
_CONTRASTS = """() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const over = (top, share, below) => top.slice(0, 3).map((c, i) => c * share + below[i] * (1 - share));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const color = channels(getComputedStyle(element).backgroundColor);
    return color[3] === 0 ? ground(element.parentElement) : over(color, color[3] ?? 1, ground(element.parentElement));
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!(own || element.matches("input, textarea")) || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const behind = ground(element);
    const share = Number(style.opacity);
    const both = [luminance(over(channels(style.color), share, behind)), luminance(behind)].sort((a, b) => b - a);
    const ratio = (both[0] + 0.05) / (both[1] + 0.05);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const name = element.id || element.className || element.tagName;
    if (ratio < needed) poor.push(`${name}: ${ratio.toFixed(2)} of ${needed}`);
  }
  return poor;
}"""

# What a job shows only on its bad days, all at once, with every badge of the list.
_SHOW_ALL = """() => {
  for (const id of ["notice", "reader-problem", "void", "composer-problem", "check", "progress-label"]) {
    const element = document.getElementById(id);
    [element.hidden, element.textContent] = [false, "Words about what happened here."];
  }
  document.getElementById("check").classList.add("bad");
  for (const id of ["progress-field", "to-end", "retry", "again"]) document.getElementById(id).hidden = false;
  const link = Object.assign(document.createElement("a"), { href: "#", textContent: "the job of 11:43 PM" });
  document.getElementById("again").replaceChildren("Again of ", link, ", which was cancelled.");
  document.getElementById("attempts").open = true;
  const attempt = document.querySelector("#attempt-list li");
  for (const end of ["lost", "failed", "throttled", "released", "unknown", "taken over", "cancelled"]) {
    const copy = attempt.cloneNode(true);
    copy.querySelector(".badge").dataset.status = copy.querySelector(".badge").textContent = end;
    attempt.before(copy);
  }
  const row = document.querySelector("#jobs li");
  for (const status of ["queued", "scheduled", "running", "failed", "cancelled", "gone"]) {
    const copy = row.cloneNode(true);
    copy.querySelector(".badge").dataset.status = copy.querySelector(".badge").textContent = status;
    copy.querySelector("button").hidden = false;
    copy.querySelector(".again").textContent = ", again of 30 Nov, 11:43 PM";
    row.parentElement.append(copy);
  }
}"""

_SAID = """() => {
  window.said = [];
  const announcer = document.getElementById("announcer");
  const options = { childList: true, characterData: true, subtree: true };
  new MutationObserver(() => window.said.push(announcer.textContent)).observe(announcer, options);
}"""

_UNNAMED = """() => {
  const bare = [...document.querySelectorAll("input, select, textarea, button, [role=region], progress")].filter(
    (element) => element.checkVisibility() && !element.labels?.length && !element.getAttribute("aria-label") &&
      !element.textContent.trim());
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  return [...bare.map((element) => element.outerHTML), ...ids.filter((id, at) => ids.indexOf(id) !== at)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_stands_out_from_its_ground(window: Window, shared_demo: Demo, scheme: Any) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.emulate_media(color_scheme=scheme)
    await tab.expect_whole(await tab.start("One sentence. And another.", 1))
    assert await tab.page.evaluate(_CONTRASTS) == []
    await tab.page.evaluate(_SHOW_ALL)
    assert await tab.page.evaluate(_CONTRASTS) == []
    for state in ("reconnecting", "refused", "live"):
        await tab.page.locator("#connection").evaluate("(element, state) => (element.dataset.state = state)", state)
        assert await tab.page.evaluate(_CONTRASTS) == []


@pytest.mark.parametrize("width", [390, 320])
async def test_a_phone_never_scrolls_sideways(window: Window, shared_demo: Demo, width: int) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.set_viewport_size(ViewportSize(width=width, height=800))
    await tab.is_ready()
    assert await overhang(tab.page) == 0
    job_id = await tab.start(f"{'W' * 300} is one word. {'https://example.org/' * 20} is another.", 2)
    await expect(tab.page.locator("#reader-title")).to_be_in_viewport()
    await tab.expect_whole(job_id)
    assert await overhang(tab.page) == 0
    await tab.page.evaluate(_SHOW_ALL)
    assert await overhang(tab.page) == 0
    assert await tab.page.locator("#sheet").evaluate("element => element.scrollWidth - element.clientWidth") == 0


async def overhang(page: Page) -> int:
    return max(0, int(await page.evaluate("document.documentElement.scrollWidth - innerWidth")))


async def test_a_finger_finds_what_it_wants(window: Window, shared_demo: Demo) -> None:
    """WCAG 2.2, 2.5.8: a target is at least 24 px wide and high."""
    tab = await open_demo(window, shared_demo)
    await tab.page.set_viewport_size(ViewportSize(width=390, height=800))
    await tab.expect_whole(await tab.start("One sentence. And another.", 1))
    await tab.page.evaluate(_SHOW_ALL)
    for target in await tab.page.locator("main :is(button, a, select, input, textarea, summary):visible").all():
        box = await target.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 24, await target.evaluate("element => element.outerHTML")


async def test_everything_has_a_name(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.is_ready()
    await tab.expect_whole(await tab.start("One sentence. And another.", 1))
    assert await tab.page.evaluate(_UNNAMED) == []
    await expect(tab.page.get_by_role("textbox", name="Your text")).to_be_visible()
    await expect(tab.page.get_by_role("combobox", name="What to do")).to_be_visible()
    await expect(tab.page.get_by_role("spinbutton", name="Sentences")).to_be_visible()
    for name in ("New job", "Jobs of this browser", "One sentence. And another.", "Text of the job"):
        await expect(tab.page.get_by_role("region", name=name)).to_be_visible()
    assert await tab.page.locator("h1").count() == 1
    assert await tab.page.get_attribute("html", "lang") == "en"


async def test_a_screen_reader_hears_the_course_and_not_every_word(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.evaluate(_SAID)
    job_id = await tab.start()
    result = await tab.expect_whole(job_id)

    async def said_the_end() -> bool:
        return any(words.startswith("Finished.") for words in await tab.page.evaluate("window.said"))

    await until(said_the_end, what="the end in the live region")
    said = await tab.page.evaluate("window.said")
    assert len(said) <= 3, said
    assert not any(result[:20] in words for words in said)
    live = ":is([aria-live], [role=status], [role=alert], [role=log])"
    around = tab.page.locator(f"{live} #text-output, #text-output{live}, #text-output {live}")
    assert await around.count() == 0
    await expect(tab.page.locator("#announcer")).to_have_attribute("aria-live", "polite")


async def test_the_policy_is_strict_and_nothing_offends_it(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    answer = await tab.page.reload()
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    await tab.expect_whole(await tab.start("One sentence. And another.", 1))
    assert window.errors == []
    await inject_a_script(tab)
    await until(lambda: window.errors, what="a complaint about a script in the page")
    assert "Content Security Policy" in window.errors[0]
    assert await tab.page.evaluate("window.hit") is None


async def inject_a_script(tab: DemoPage) -> None:
    await tab.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.hit = 1' }))"
    )


async def test_the_text_is_followed_until_somebody_scrolls_up(window: Window, shared_demo: Demo) -> None:
    tab = await open_demo(window, shared_demo)
    await tab.page.set_viewport_size(ViewportSize(width=390, height=600))
    job_id = await tab.start(sentences=30)
    sheet = tab.page.locator("#sheet")
    overflow = "element => element.scrollHeight - element.clientHeight > 200"
    await until(lambda: sheet.evaluate(overflow), 30, what="a text that is longer than the sheet")
    await sheet.hover()
    await tab.page.mouse.wheel(0, -2000)
    await expect(tab.page.locator("#to-end")).to_be_visible()
    seen = await tab.last_event()
    await tab.reaches(seen + 10)
    assert await sheet.evaluate("element => element.scrollTop") == 0
    await tab.page.click("#to-end")
    await expect(tab.page.locator("#to-end")).to_be_hidden()
    await tab.expect_whole(job_id)
    left = "element => element.scrollHeight - element.clientHeight - element.scrollTop"
    assert await sheet.evaluate(left) < 2
