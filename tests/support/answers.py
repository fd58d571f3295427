"""A proxy before PostgreSQL that lets requests pass and interferes with the answers: what was asked for happens, and
whoever asked does not hear of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support import proxy
from tests.support.proxy import Proxy, _Connection, proxy_to


class AnswerProxy(Proxy):
    """`share`: of the answers are swallowed and their connection cut. `hold`: answers wait until `let_go`."""

    share = 0.0
    cuts = 0

    def __init__(self, target: proxy.Target) -> None:
        super().__init__(target)
        self._random = random.Random(7)
        self._answering = asyncio.Event()
        self._answering.set()
        self.held = asyncio.Event()

    def hold(self) -> None:
        self._answering.clear()
        self.held.clear()

    def let_go(self) -> None:
        self._answering.set()

    async def _forward(self, data: bytes, sink: asyncio.StreamWriter, down: _Connection | None) -> None:
        if down is not None:
            if not self._answering.is_set():
                self.held.set()
            await self._answering.wait()
            if self._random.random() < self.share:
                self.cuts += 1
                down.end("rst")
                return
        await super()._forward(data, sink, down)


@asynccontextmanager
async def answers_of(url: str) -> AsyncIterator[AnswerProxy]:
    """In front of the PostgreSQL that `url` names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proxy, "Proxy", AnswerProxy)
        async with proxy_to(url) as made:
            assert isinstance(made, AnswerProxy)
            try:
                yield made
            finally:
                made.let_go()
