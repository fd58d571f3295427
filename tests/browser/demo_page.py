"""The demo's page as a person uses it: what he does and what he sees, in the page's own words."""

from __future__ import annotations

import uuid
from typing import Any

from playwright.async_api import Page, Response, Route, expect

from tests.support.waiting import until

TEXT = "\n\n".join(
    f"Sentence number {n} tells how the {thing} of the harbour, café, \U0001f6a2 and all, met the sea at dawn."
    for n, thing in enumerate(["crane", "tug", "pilot", "lamp", "bell", "buoy", "quay", "gull", "rope", "mast"] * 4)
)
# Other tests may hold both cores.
SEEN_WITHIN_S = 20.0
SEEN_WITHIN_MS = SEEN_WITHIN_S * 1000


class DemoPage:
    """One tab on the demo at `url`. Every wait raises AssertionError after SEEN_WITHIN_S seconds."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        page.set_default_timeout(SEEN_WITHIN_MS)

    async def is_ready(self) -> None:
        """The page has a session and has been told what there is."""
        await expect(self.page.locator("#documents option")).not_to_have_count(1, timeout=SEEN_WITHIN_MS)

    async def start(self, text: str = TEXT, sentences: int = 12) -> str:
        """Makes a `summarize` job of the text, by mouse; see `begin`."""
        await self.page.fill("#text", text)
        return await self.begin(sentences)

    async def begin(self, sentences: int) -> str:
        """Makes a job of what the form holds; returns its id once the address names it."""
        await self.page.fill("#sentences", str(sentences))
        async with self.page.expect_response(is_creation) as answer:
            await self.page.click("#start")
        return await self.opened(await answer.value)

    async def post(self, job: dict[str, Any]) -> str:
        """Makes a job as this browser's user, past the form; returns its id."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        answer = await self.page.context.request.post(f"{self.url}/api/ai/jobs", data=job, headers=headers)
        assert answer.ok, await answer.text()
        return str((await answer.json())["job_id"])

    async def opened(self, creation: Response) -> str:
        """The id of a job just made, once the page has opened it."""
        assert creation.ok, await creation.text()
        job_id = str((await creation.json())["job_id"])
        await until(
            lambda: self.page.url.endswith(f"#job={job_id}"), SEEN_WITHIN_S, what="the new job in the address"
        )
        return job_id

    async def text(self) -> str:
        """What stands on the sheet now, character by character."""
        return await self.page.locator("#text-output").text_content() or ""

    async def last_event(self) -> int:
        return int(await self.page.locator("#last-event").get_attribute("data-id") or 0)

    async def reaches(self, event: int) -> None:
        """The page has shown the event of that id, or a later one."""

        async def shown() -> bool:
            return await self.last_event() >= event

        await until(shown, SEEN_WITHIN_S, what=f"event {event} on the page")

    async def connection_is(self, state: str) -> None:
        await expect(self.page.locator("#connection")).to_have_attribute("data-state", state, timeout=SEEN_WITHIN_MS)

    async def status_of(self, job_id: str, status: str) -> None:
        """The job's row in the list of this browser says so."""
        badge = self.page.locator(f"#jobs li[data-job='{job_id}'] .badge")
        await expect(badge).to_have_text(status, timeout=SEEN_WITHIN_MS)

    async def status_is(self, status: str) -> None:
        await expect(self.page.locator("#job-status")).to_have_text(status, timeout=SEEN_WITHIN_MS)

    async def job(self, job_id: str) -> dict[str, Any]:
        """The job object, asked for with this browser's cookie."""
        answer = await self.page.context.request.get(f"{self.url}/api/ai/jobs/{job_id}")
        assert answer.ok, await answer.text()
        job: dict[str, Any] = await answer.json()
        return job

    async def expect_whole(self, job_id: str) -> str:
        """The job succeeds and the page shows its result, no character more or less. Returns that text."""
        await self.status_is("succeeded")
        await self.connection_is("ended")
        job = await self.job(job_id)
        assert job["status"] == "succeeded"
        assert await self.text() == job["result"]["text"]
        assert await self.last_event() == job["last_event_id"]
        await expect(self.page.locator("#check")).to_contain_text("equals the stored result")
        return str(job["result"]["text"])


def is_creation(answer: Response) -> bool:
    """Whether this is the answer to the page's own POST of a job."""
    return answer.request.method == "POST" and answer.url.endswith("/api/ai/jobs")


async def use_token(page: Page, token: str) -> list[str]:
    """The page's first stream asks with `token` instead of its own; what is returned fills with each token sent."""
    sent: list[str] = []

    async def swap(route: Route) -> None:
        before, _, rest = route.request.url.partition("token=")
        own, ampersand, after = rest.partition("&")
        sent.append(token if not sent else own)
        await route.continue_(url=f"{before}token={sent[-1]}{ampersand}{after}")

    await page.route("**/events?*token=*", swap)
    return sent
