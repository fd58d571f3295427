"""An OpenAI-compatible server that misbehaves on purpose, on a real socket.

    async with FakeProvider() as fake:
        fake.scripts["my-model"] = script       # else SCRIPTS by the model's name
        ... base_url=fake.base_url ...
        fake.requests                           # every request on the wire, with what became of it

A script is an async function of one `Exchange`. `release()` lets scripts pass that wait for it, so a test
decides what has been sent at any moment. `python -m tests.support.fake_provider` serves SCRIPTS on a free
port, which it prints.
"""

from __future__ import annotations

import asyncio
import contextlib

from scripted_provider import exchange
from scripted_provider.server import Server
from tests.support.provider_scripts import SCRIPTS, Exchange, failing


class FakeProvider(Server):
    """The server: an async context manager that ends every connection when it is left."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._script, port)
        self.scripts = dict(SCRIPTS)

    async def _script(self, wire: exchange.Exchange) -> None:
        script = self.scripts.get(wire.request.json["model"], failing(404, "model_not_found"))
        await script(Exchange.of(wire))


async def _main() -> None:
    async with FakeProvider() as fake:
        print(fake.base_url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
