"""A model that says one piece for each that is asked for, so that a job is written while it is read."""

from __future__ import annotations

import asyncio

from tests.support.provider_scripts import Exchange


class Pieces:
    """One job's answer. `script` belongs into `FakeProvider.scripts`; further requests go on with what is left."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._asked = asyncio.Semaphore(0)

    def release(self, times: int = 1) -> None:
        """Lets so many more pieces out, the end being the last."""
        for _ in range(times):
            self._asked.release()

    def release_all(self) -> None:
        self.release(len(self._texts) + 1)

    async def script(self, exchange: Exchange) -> None:
        await exchange.head()
        for text in self._texts:
            await self._asked.acquire()
            await exchange.text(text)
        await self._asked.acquire()
        await exchange.finish()
        await exchange.usage()
        await exchange.done()
