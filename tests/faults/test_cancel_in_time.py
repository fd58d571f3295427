"""A cancel closes the outgoing request of another process: within 1 s by NOTIFY, within 2 s without."""

from __future__ import annotations

import random
import time
from pathlib import Path

import anyio
import pytest

from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.test_dying_workers import odd_worker
from tests.faults.test_worker_stops import speaks
from tests.support.fake_provider import FakeProvider
from tests.support.proxy import proxy_to

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TRIES = 7


async def cancel_s(house: House, fake: FakeProvider, order: random.Random) -> float:
    """From the wish to the moment at which the provider sees that nobody listens."""
    said = Pieces(["one", "two"])
    fake.scripts["m1"] = said.script
    job = await house.api.create_soon("chat", says("go on"))
    said.release()
    await speaks(house, job)
    # Anywhere between two looks of the worker.
    await anyio.sleep(order.uniform(0, 1.5))
    began = time.monotonic()
    answer = await house.api.client.post(f"/api/ai/jobs/{job['job_id']}/cancel")
    assert answer.status_code == 202
    await fake.requests[-1].gone.wait()
    took = time.monotonic() - began
    assert (await house.api.ended(job["job_id"]))["status"] == "cancelled"
    return took


@pytest.mark.parametrize(("notify", "within_s"), [(True, 1.0), (False, 2.0)])
async def test_a_cancel_is_learned_in_time(database_url: str, tmp_path: Path, notify: bool, within_s: float) -> None:
    """By the median, since this machine may have other things to do; without NOTIFY only the poll is left."""
    order = random.Random(0)
    async with FakeProvider() as fake, open_house(database_url) as house, proxy_to(database_url) as proxy:
        providers = write_providers(tmp_path, fake_url=fake.base_url)
        more = {"OUTLIVE_DIRECT_URL": proxy.url, "OUTLIVE_LEASE_SECONDS": "60"}
        async with odd_worker(database_url, tmp_path, providers, more):
            if not notify:
                proxy.freeze()
            took = sorted([await cancel_s(house, fake, order) for _ in range(TRIES)])
            proxy.thaw()
    print(f"notify {notify}: request closed after {took[TRIES // 2]:.2f} s (median), {took[-1]:.2f} s at most")
    assert took[TRIES // 2] < within_s
