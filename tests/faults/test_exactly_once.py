"""The exactly-once property: wherever a stream is cut, and however often, its reader ends with the log itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urljoin

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.faults.follower import Follower
from tests.faults.house import House, open_house, says, write_providers
from tests.faults.pieces import Pieces
from tests.faults.truth import expect_succeeded
from tests.support.databases import Databases
from tests.support.fake_provider import FakeProvider
from tests.support.proxy import How, proxy_to
from tests.support.servers import Gateway, start_gateway, start_worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(150)]

JOBS = 20
# Over the three tests these are hundreds; with fewer the property was hardly tried.
LEAST_CUTS = 6 * JOBS
# What one connection gives before it breaks off: nothing, a part of the head, or some events and a part of one.
CUT_AFTER_BYTES = st.one_of(st.integers(0, 300), st.integers(250, 700))
CUTS = st.lists(CUT_AFTER_BYTES, min_size=10, max_size=20)
BREAKS = st.lists(st.tuples(CUT_AFTER_BYTES, st.sampled_from(["rst", "fin"])), min_size=10, max_size=20)
TEXTS = st.lists(st.text(min_size=1, max_size=20), min_size=20, max_size=40)
# No shrinking: what a race did once it need not do again, and the plan that failed is printed as it was.
PROPERTY = settings(
    max_examples=JOBS,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(slots=True)
class Tally:
    """What all examples of one test did together."""

    jobs: int = 0
    cuts: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """Two gateways and a worker on one database, and a model that says a piece whenever it is asked to."""

    house: House
    second: Gateway
    fake: FakeProvider

    async def follow(self, tally: Tally, texts: list[str], *addresses: str, cuts: list[int]) -> None:
        """One job, read by way of `addresses` in turn while it is written: the model speaks as the reader reads."""
        pieces = Pieces(texts)
        self.fake.scripts["m1"] = pieces.script
        job = await self.house.api.create_soon("chat", says("go on"))
        follower = Follower(
            *(urljoin(address, job["events_url"]) for address in addresses),
            cuts_after=cuts,
            on_connect=pieces.release,
            on_event=lambda _: pieces.release(),
        )
        with anyio.fail_after(40):
            await follower.run()
        await expect_succeeded(self.house.database, self.house.api, job, follower)
        tally.jobs += 1
        tally.cuts += follower.cuts


@pytest.fixture
def tally() -> Iterator[Tally]:
    """Looked at when all examples are over: a property that was hardly tried is not proven."""
    made = Tally()
    yield made
    assert made.jobs >= JOBS
    assert made.cuts >= LEAST_CUTS


@pytest.fixture(scope="module")
async def stage(
    databases: Databases, anyio_backend: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    url = databases.create()
    folder = tmp_path_factory.mktemp("providers")
    try:
        async with AsyncExitStack() as stack:
            fake = await stack.enter_async_context(FakeProvider())
            providers = write_providers(folder, fake_url=fake.base_url)
            house = await stack.enter_async_context(open_house(url))
            second = await stack.enter_async_context(start_gateway(url))
            await stack.enter_async_context(start_worker(url, providers=providers))
            yield Stage(house, second, fake)
    finally:
        databases.drop(url)


@PROPERTY
@given(texts=TEXTS, cuts=CUTS)
async def test_a_reader_that_breaks_off_at_any_byte_gets_each_event_once(
    stage: Stage, tally: Tally, texts: list[str], cuts: list[int]
) -> None:
    await stage.follow(tally, texts, stage.house.gateway.url, cuts=cuts)


@PROPERTY
@given(texts=TEXTS, breaks=BREAKS)
async def test_a_network_that_breaks_at_any_byte_costs_no_event(
    stage: Stage, tally: Tally, texts: list[str], breaks: list[tuple[int, How]]
) -> None:
    async with proxy_to(stage.house.gateway.url) as proxy:
        for after_bytes, how in breaks:
            proxy.cut_next_after(after_bytes, how)
        await stage.follow(tally, texts, proxy.url, cuts=[])


@PROPERTY
@given(texts=TEXTS, cuts=CUTS)
async def test_a_reader_that_goes_from_gateway_to_gateway_gets_each_event_once(
    stage: Stage, tally: Tally, texts: list[str], cuts: list[int]
) -> None:
    await stage.follow(tally, texts, stage.house.gateway.url, stage.second.url, cuts=cuts)
