"""A real gateway and real workers over one database, each a process of its own on a free port.

async with start_gateway(database_url) as gateway, start_worker(database_url):
    ...  # gateway.url
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.support.processes import START_WITHIN_S, ServerProcess
from tests.support.waiting import until

# Signs stream tokens: the same for every process of a test, so that one gateway's token opens another's stream.
SECRET = "a-secret-of-the-tests-longer-than-32-bytes"

_LISTENING = re.compile(r"outlive gateway listening on (http://\S+)")
_ADMIN = re.compile(r"outlive gateway admin listening on (http://\S+)")

Environment = Mapping[str, str]


class Gateway(ServerProcess):
    """`url` is where it listens, the same after each `start_again`; `admin_url` is another each time."""

    url = ""
    admin_url = ""

    async def start(self) -> None:
        """Launches it, and returns once /readyz answers 200."""
        known = len(self.log_text())
        await self.launch()
        await self.logs("outlive gateway listening on ", after=known)
        found = _LISTENING.search(self.log_text(), known)
        # It says where its admin port is first.
        admin = _ADMIN.search(self.log_text(), known)
        assert found is not None
        assert admin is not None
        self.url, self.admin_url = found[1], admin[1]
        await until(self._is_ready, START_WITHIN_S, what="200 from /readyz")

    async def start_again(self) -> None:
        """On the same port, as after a crash or a deploy."""
        self.environment["OUTLIVE_PORT"] = self.url.rpartition(":")[2]
        await self.start()

    async def _is_ready(self) -> bool:
        self.expect_running()
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(f"{self.url}/readyz", timeout=5)
        except httpx.TransportError:
            return False
        return answer.status_code == 200


def environment_for(database_url: str, more: Environment | None = None) -> dict[str, str]:
    """What every process of a test is started with; `more` goes over it."""
    return {
        "DATABASE_URL": database_url,
        "OUTLIVE_SECRET": SECRET,
        "OUTLIVE_LOG": "json",
        "OUTLIVE_GRACE_SECONDS": "10",
        "OUTLIVE_ADMIN_PORT": "0",
        **(more or {}),
    }


@asynccontextmanager
async def start_gateway(database_url: str, environment: Environment | None = None) -> AsyncIterator[Gateway]:
    """A gateway on a free port of 127.0.0.1, ready to serve."""
    async with Gateway(
        "gateway", environment_for(database_url, {"OUTLIVE_PORT": "0", **(environment or {})})
    ) as gateway:
        await gateway.start()
        yield gateway


@asynccontextmanager
async def start_worker(
    database_url: str, environment: Environment | None = None, *, providers: Path | None = None
) -> AsyncIterator[ServerProcess]:
    """A worker that has registered its kinds and takes jobs.

    `providers`: a providers file, for example one that `fast_extractive` wrote.
    """
    file = {"OUTLIVE_PROVIDERS": str(providers)} if providers else {}
    async with ServerProcess("worker", environment_for(database_url, {**file, **(environment or {})})) as worker:
        await worker.launch()
        await worker.logs("worker ready")
        yield worker


def fast_extractive(folder: Path, words_per_second: float = 0) -> Path:
    """A providers file by which `extractive` streams at that pace; 0 is as fast as it goes."""
    path = folder / "providers.toml"
    path.write_text(
        f'[providers.extractive]\ntype = "extractive"\nwords_per_second = {words_per_second}\n', encoding="utf-8"
    )
    return path
