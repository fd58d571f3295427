"""A generation that goes on when nobody listens is gone on with, and never bought twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from uuid import UUID

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.database import Database
from schema.drafts import EventKind
from schema.events import Event
from schema.hints import HintSender
from scripted_provider.behaviour import Behaviour
from scripted_provider.provider import ScriptedProvider
from scripted_provider.script import text_of
from tests.support.jobs import (
    attempt_rows,
    call_rows,
    check_log,
    claim_one,
    expire,
    job_row,
    log_of,
    queued,
    register,
)
from tests.support.runs import serving
from tests.support.waiting import until
from worker.ending import Services
from worker.handlers.kind import Handler, Json, Kind, Repeat, RunContext
from worker.providers.openai_responses import OpenAIResponses
from worker.providers.provider import Message, Prompt, TokenPrice
from worker.providers.settings import ProviderSettings
from worker.reaper import Reaper
from worker.run import Run, Stop

pytestmark = pytest.mark.anyio

KIND = "asks"
PROMPT = Prompt((Message("user", "six words that are asked for"),))
PRICE = TokenPrice(Decimal(1), Decimal(2))
# The six words above, and a word for each of the 40 pieces.
COST = (6 * PRICE.input_usd + 40 * PRICE.output_usd) / 1_000_000


async def asks(run: RunContext, _: dict[str, Json]) -> Json:
    """A handler that is one call."""
    return {"text": (await run.call(PROMPT)).text}


async def speaks_first(run: RunContext, _: dict[str, Json]) -> Json:
    await run.emit("Look: ")
    return {"text": "Look: " + (await run.call(PROMPT)).text}


class Table:
    """One job, and its attempts one after the other, each by a run as a worker has it."""

    def __init__(self, services: Services, server: ScriptedProvider, model: str, repeat: Repeat) -> None:
        self.services = services
        self.server = server
        self.repeat = repeat
        table = ProviderSettings("there", "openai_responses", base_url=server.base_url, models=(model,), price=PRICE)
        self.provider = OpenAIResponses(table)
        self.job_id: UUID

    @property
    def database(self) -> Database:
        return self.services.database

    async def attempt(self, handler: Handler = asks) -> Run:
        """The next one, at once however long it should wait."""
        sql = "UPDATE outlive.ai_jobs SET status = 'queued', run_at = now() WHERE id = $1 AND status = 'scheduled'"
        await self.database.execute(sql, self.job_id)
        claimed = await claim_one(self.database, KIND)
        kind = Kind(KIND, 1, {}, self.repeat, handler, "any")
        deadline = self.services.keeper.first_deadline(anyio.current_time())
        return Run(self.services, claimed, kind, self.provider, deadline)

    @property
    def bought(self) -> int:
        """How many generations were paid for."""
        return sum(each.method == "POST" and each.path.endswith("/responses") for each in self.server.requests)

    async def said(self) -> list[Event]:
        return await check_log(self.database, self.job_id)

    async def has_said(self, pieces: int) -> None:
        """Waits until so much is in the log."""
        wanted = text_of(Behaviour("well", pieces=pieces))

        async def is_there() -> bool:
            return kept_text(await log_of(self.database, self.job_id)) == wanted

        await until(is_there)

    async def is_running_no_more(self) -> None:
        async def has_stopped() -> bool:
            return bool((await job_row(self.database, self.job_id))["status"] != "running")

        await until(has_stopped)


@asynccontextmanager
async def table(
    database: Database, model: str, repeat: Repeat = Repeat.SAFE, on_unknown: str = "fail"
) -> AsyncIterator[Table]:
    async with ScriptedProvider() as server, serving(database) as services:
        it = Table(services, server, model, repeat)
        it.job_id = await queued(database, kind=KIND, max_attempts=3, on_unknown=on_unknown)
        await register(database, KIND, repeat.value)
        yield it


def kept_text(events: list[Event]) -> str:
    """What a reader holds that follows the attempt rule."""
    chunks: list[tuple[int, str]] = []
    for event in events:
        if event.kind is EventKind.ATTEMPT:
            keeps = orjson.loads(event.data)["resumes_after"]
            chunks = [(seq, text) for seq, text in chunks if seq <= keeps]
        elif event.kind is EventKind.CHUNK:
            chunks.append((event.seq, event.data))
    return "".join(text for _, text in chunks)


def reasons(events: list[Event]) -> list[str]:
    return [orjson.loads(event.data)["reason"] for event in events if event.kind is EventKind.ATTEMPT]


WHOLE = text_of(Behaviour("well"))


async def test_a_cut_costs_no_token_and_nothing_twice(database: Database) -> None:
    async with table(database, "cut?after=11") as it:
        await (await it.attempt()).execute()
        assert (await job_row(database, it.job_id))["next_reason"] == "reattached"
        assert kept_text(await it.said()) == text_of(Behaviour("well", pieces=11))
        await (await it.attempt()).execute()
        assert it.bought == 1
    events = await it.said()
    assert reasons(events) == ["started", "reattached"]
    assert kept_text(events) == "".join(event.data for event in events if event.kind is EventKind.CHUNK) == WHOLE
    assert orjson.loads(events[-1].data)["result"] == {"text": WHOLE}
    first, second = await call_rows(database, it.job_id)
    assert (first["outcome"], first["resolved_outcome"], first["cost_usd"]) == ("unknown", "continued", 0)
    assert (second["outcome"], second["continues_attempt"], second["continues_call"]) == ("succeeded", 1, 1)
    assert (second["cost_usd"], second["output_tokens"]) == (COST, 40)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut_at=st.integers(1_000, 12_000), chunk=st.integers(1, 60))
async def test_wherever_it_is_cut_the_text_is_whole(database: Database, cut_at: int, chunk: int) -> None:
    """Behind the event with its id, which has some 700 bytes, a cut falls anywhere, into a face of four bytes too."""
    async with table(database, f"well?bytes={cut_at}&chunk={chunk}") as it:
        await (await it.attempt()).execute()
        while (await job_row(database, it.job_id))["finished_at"] is None:
            await (await it.attempt()).execute()
        assert it.bought == 1
    events = await it.said()
    assert kept_text(events) == WHOLE
    assert set(reasons(events)) <= {"started", "reattached"}


async def test_a_worker_that_is_gone_loses_no_token(database: Database) -> None:
    async with table(database, "stall?after=7") as it, anyio.create_task_group() as tasks:
        run = await it.attempt()
        tasks.start_soon(run.execute)
        await it.has_said(7)
        await expire(database, it.job_id)
        reaper = Reaper(database, HintSender(database))
        await reaper._take_back()
        run.lose_lease()
        assert (await job_row(database, it.job_id))["next_reason"] == "reattached"
        await (await it.attempt()).execute()
        assert it.bought == 1
    events = await it.said()
    assert reasons(events) == ["started", "reattached"]
    assert kept_text(events) == WHOLE


async def test_a_worker_that_stops_hands_over_and_it_does_not_count(database: Database) -> None:
    async with table(database, "stall?after=7", Repeat.CHECKPOINT) as it, anyio.create_task_group() as tasks:
        run = await it.attempt()
        was_safe = run.is_safe_to_hand_back
        tasks.start_soon(run.execute)
        await it.has_said(7)
        assert (was_safe, run.is_safe_to_hand_back) == (False, True)
        run.stop(Stop.HAND_BACK)
        await it.is_running_no_more()
        await (await it.attempt()).execute()
        assert it.bought == 1
    events = await it.said()
    assert reasons(events) == ["started", "reattached"]
    assert kept_text(events) == WHOLE
    assert [row["counted"] for row in await attempt_rows(database, it.job_id)] == [False, True]


async def test_what_its_handler_said_itself_is_void_and_the_same_generation_is_heard_again(
    database: Database,
) -> None:
    async with table(database, "cut?after=11") as it:
        await (await it.attempt(speaks_first)).execute()
        await (await it.attempt(speaks_first)).execute()
        assert it.bought == 1
    events = await it.said()
    assert reasons(events) == ["started", "unknown_retry"]
    assert kept_text(events) == "Look: " + WHOLE
    assert orjson.loads(events[-1].data)["result"] == {"text": "Look: " + WHOLE}


@pytest.mark.parametrize(("on_unknown", "status", "bought"), [("fail", "failed", 1), ("retry", "succeeded", 2)])
async def test_once_the_provider_has_forgotten_it_the_unknown_rule_decides(
    database: Database, on_unknown: str, status: str, bought: int
) -> None:
    async with table(database, "cut?after=11&times=1", on_unknown=on_unknown) as it:
        await (await it.attempt()).execute()
        it.server.generations.clear()
        while (await job_row(database, it.job_id))["finished_at"] is None:
            await (await it.attempt()).execute()
        assert it.bought == bought
    assert (await job_row(database, it.job_id))["status"] == status
    calls = await call_rows(database, it.job_id)
    assert (calls[1]["outcome"], calls[1]["error_code"], calls[1]["cost_usd"]) == ("unknown", "generation_gone", None)
    if status == "succeeded":
        assert kept_text(await it.said()) == WHOLE


async def test_a_handler_that_asks_for_something_else_does_not_go_on_with_it(database: Database) -> None:
    async def another(run: RunContext, _: dict[str, Json]) -> Json:
        return (await run.call(Prompt((Message("user", "something else"),)))).text

    async with table(database, "cut?after=11&times=1") as it:
        await (await it.attempt()).execute()
        await (await it.attempt(another)).execute()
        assert it.bought == 1
    row = await job_row(database, it.job_id)
    assert (row["status"], row["error_code"], row["error_class"]) == ("failed", "cannot_go_on", "unknown")


async def test_a_cancel_ends_the_generation_too(database: Database) -> None:
    """Its connection alone would not: the generation would go on, and cost."""
    async with table(database, "stall?after=7&rate=5") as it, anyio.create_task_group() as tasks:
        run = await it.attempt()
        tasks.start_soon(run.execute)
        await it.has_said(7)
        run.cancel()
        await it.is_running_no_more()
        (generation,) = it.server.generations.values()
        assert generation.wire.status == "cancelled"
    (call,) = await call_rows(database, it.job_id)
    assert (call["outcome"], call["error_class"]) == ("cancelled", None)
