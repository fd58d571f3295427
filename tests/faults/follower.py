"""A reader that does not give up: cut, refused or sent away, it comes back with its cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle
from urllib.parse import urlsplit

import anyio

from tests.support.reader import Reader
from tests.support.sse_client import EventStream, StreamCut, open_stream
from tests.support.sse_frames import Event
from tests.support.waiting import until

# A gateway that was killed is started again within this, or the test fails in saying so.
COMES_BACK_WITHIN_S = 45.0


class Follower:
    """Reads one job to its end by the strict client. `urls` are taken in turn, one for each connection.

    `seen`: every event that has an id, in order. `connections` and `cuts` count what happened. `cuts_after`:
    after how many bytes each connection in turn breaks off, after the last of them none does.
    """

    def __init__(
        self,
        *urls: str,
        cuts_after: Iterable[int] = (),
        on_connect: Callable[[], None] = lambda: None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.reader = Reader()
        self.seen: list[Event] = []
        self.connections = 0
        self.cuts = 0
        self._urls = cycle(urls)
        self._cuts_after = iter(cuts_after)
        self._on_connect = on_connect
        self._on_event = on_event

    async def run(self) -> None:
        """Returns at 204, which has to come after the terminal event. The caller bounds the time."""
        while not await self._one_connection(next(self._urls)):
            pass
        assert self.reader.finished, f"204 before the end, at id {self.reader.cursor}"

    async def sees(self, name: str, within_s: float = 30.0, **data: object) -> Event:
        """The first event of that name whose data holds these members."""

        def seen() -> Event | None:
            fitting = (e for e in self.seen if e.name == name and data.items() <= e.data.items())
            return next(fitting, None)

        event = await until(seen, within_s, what=f"the event {name} {data}")
        assert event is not None
        return event

    async def _one_connection(self, url: str) -> bool:
        self._on_connect()
        cut_after = next(self._cuts_after, None)
        try:
            async with open_stream(url, last_event_id=self.reader.cursor, cut_after=cut_after) as stream:
                return await self._read(stream)
        except StreamCut:
            self.cuts += 1
        except ConnectionError:
            await until(partial(_accepts, url), COMES_BACK_WITHIN_S, what=f"a server at {url}")
        return False

    async def _read(self, stream: EventStream) -> bool:
        self.connections += 1
        async for event in stream:
            self.reader.take(event)
            if event.cursor is not None:
                self.seen.append(event)
                self._on_event(event)
            if event.name == "reconnect":
                # What the contract asks of a reader; without it twenty of them would hammer a gateway without tables.
                await anyio.sleep(event.data["retry_ms"] / 1000)
        return stream.status == 204


async def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except ConnectionError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
