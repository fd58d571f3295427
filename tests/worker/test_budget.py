"""A job is stopped where its calls have cost more than it may, and never makes another; what had completed stays."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from decimal import Decimal

import anyio
import orjson
import pytest

from schema.calls import CallStart, open_call
from schema.creation import JobMoney
from schema.database import Database
from schema.hints import HintSender
from schema.runs import Exposure
from tests.support.jobs import attempt_rows, call_rows, check_log, expire, job_row, register, running
from tests.support.money import a_payer, account, agrees, at_most, called, promise
from tests.support.runs import PROMPT, Scripted, a_run, calls_once, serving
from worker.budget import Budget, estimate_usd
from worker.handlers.kind import Handler, Json, Repeat, RunContext
from worker.providers.provider import CallOutcome, Message, Piece, Prompt, Receipt, TokenPrice
from worker.reaper import Reaper
from worker.run import Run

pytestmark = pytest.mark.anyio

# A piece of 400 characters is 100 tokens: 10 cents.
PRICE = TokenPrice(Decimal(0), Decimal(1000))
PIECE = "x" * 400


@dataclass
class Priced:
    """A provider whose calls each report this cost at their end; `together`: so many begin before one speaks."""

    cost_usd: str | None = "0.4"
    pieces: tuple[str, ...] = ("a",)
    token_price: TokenPrice | None = None
    name: str = "priced"
    together: int = 1
    calls: int = 0
    begun: anyio.Event = field(default_factory=anyio.Event)
    stopped: list[Receipt] = field(default_factory=list)

    def price(self, model: str | None) -> TokenPrice | None:
        return self.token_price

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        self.calls += 1
        receipt.mark_sent()
        if self.calls == self.together:
            self.begun.set()
        try:
            await self.begun.wait()
            for text in self.pieces:
                yield Piece(text)
                await anyio.lowlevel.checkpoint()
            if self.cost_usd is not None:
                receipt.price(Decimal(self.cost_usd), "provider")
            receipt.outcome = CallOutcome.SUCCEEDED
        finally:
            if receipt.outcome is None:
                self.stopped.append(receipt)


async def calls_on(run: RunContext, _: dict[str, Json]) -> Json:
    """Calls as often as it may."""
    while True:
        await run.call(PROMPT)


async def executed(
    database: Database, handler: Handler, provider: Priced, most_usd: str = "1", quota_usd: str = "10"
) -> Run:
    tenant = await a_payer(database, quota_usd)
    async with serving(database) as services:
        run = await a_run(services, handler, provider, tenant_id=tenant.id, money=at_most(most_usd))
        await run.execute()
    await agrees(database)
    return run


async def stopped_for_its_cost(database: Database, run: Run, charged: str, *, calls: int) -> list[str]:
    """What a job that has passed its budget looks like from everywhere; returns the kinds of its events."""
    row = await job_row(database, run.lease.job_id)
    assert (row["status"], row["error_class"], row["error_code"]) == ("failed", "budget", "max_cost_reached")
    events = await check_log(database, run.lease.job_id)
    wishes = [orjson.loads(event.data) for event in events if event.kind == "cancel_requested"]
    assert wishes == [{"by": "budget"}]
    error = orjson.loads(events[-1].data)["error"]
    assert (error["code"], error["class"]) == ("max_cost_reached", "budget")
    assert not any(digit in error["message"] for digit in "0123456789"), "how much, tokens are not told"
    (attempt,) = await attempt_rows(database, run.lease.job_id)
    assert attempt["outcome"] == "failed"
    assert len(await call_rows(database, run.lease.job_id)) == calls
    settled = await promise(database, run.lease.job_id)
    assert settled is not None
    assert (settled["state"], settled["charged_usd"]) == ("charged", Decimal(charged))
    return [event.kind for event in events]


async def test_it_is_stopped_before_its_next_call(database: Database) -> None:
    provider = Priced("0.4")
    run = await executed(database, calls_on, provider)
    assert provider.calls == 3, "two have cost less than it may, the third more, and there is no fourth"
    kinds = await stopped_for_its_cost(database, run, "1", calls=3)
    assert kinds[-2:] == ["cancel_requested", "failed"]


async def test_exactly_as_much_as_it_may_is_not_more(database: Database) -> None:
    provider = Priced("0.5")
    run = await executed(database, calls_on, provider)
    assert provider.calls == 3
    await stopped_for_its_cost(database, run, "1", calls=3)


async def test_ten_times_ten_cents_are_a_dollar(database: Database) -> None:
    provider = Priced("0.1")
    await executed(database, calls_on, provider)
    assert provider.calls == 11


async def test_a_call_that_has_completed_keeps_its_result(database: Database) -> None:
    """It cost more than it may have; the money is spent either way, and the tenant pays no more than was reserved."""
    run = await executed(database, calls_once, Priced("3"))
    assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"
    assert (await promise(database, run.lease.job_id) or {})["charged_usd"] == 1


async def test_it_is_stopped_in_mid_stream_by_estimate(database: Database) -> None:
    provider = Priced(pieces=(PIECE,) * 50, token_price=PRICE)
    run = await executed(database, calls_once, provider)
    kinds = await stopped_for_its_cost(database, run, "1", calls=1)
    assert kinds[-3:] == ["cancel_requested", "external", "failed"]
    (call,) = await call_rows(database, run.lease.job_id)
    assert (call["outcome"], call["cost_source"]) == ("cancel_unconfirmed", "estimated")
    assert (call["cost_usd"], call["cost_is_lower_bound"]) == (Decimal("1.1"), True)
    assert len(provider.stopped) == 1


async def test_the_prompt_is_paid_for_too(database: Database) -> None:
    async def asks_at_length(run: RunContext, _: dict[str, Json]) -> Json:
        return {"text": (await run.call(Prompt((Message("user", PIECE * 11),)))).text}

    provider = Priced(pieces=("a", "b"), token_price=TokenPrice(Decimal(1000), Decimal(0)))
    run = await executed(database, asks_at_length, provider)
    await stopped_for_its_cost(database, run, "1", calls=1)


async def test_calls_at_once_are_counted_together(database: Database) -> None:
    """Each of the four would stay within the bound by itself."""

    async def four_at_once(run: RunContext, _: dict[str, Json]) -> Json:
        async with anyio.create_task_group() as tasks:
            for _n in range(4):
                tasks.start_soon(run.call, PROMPT)
        return None

    provider = Priced(pieces=(PIECE,) * 8, token_price=PRICE, together=4)
    run = await executed(database, four_at_once, provider)
    row = await job_row(database, run.lease.job_id)
    assert (row["error_class"], len(provider.stopped)) == ("budget", 4)
    calls = await call_rows(database, run.lease.job_id)
    assert {call["cost_source"] for call in calls} == {"estimated"}
    assert Decimal(1) < sum(call["cost_usd"] for call in calls) < Decimal("1.5")


async def test_without_a_price_it_is_let_end_and_stopped_before_the_next(database: Database) -> None:
    provider = Priced("7", pieces=(PIECE,) * 50)
    run = await executed(database, calls_on, provider)
    assert (provider.calls, provider.stopped) == (1, [])
    await stopped_for_its_cost(database, run, "1", calls=1)


async def test_a_cost_that_nobody_knows_stops_nothing(database: Database) -> None:
    async def five_calls(run: RunContext, _: dict[str, Json]) -> Json:
        for _n in range(5):
            await run.call(PROMPT)
        return None

    run = await executed(database, five_calls, Priced(None))
    assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"
    assert (await promise(database, run.lease.job_id) or {})["charged_usd"] == 1


@pytest.mark.parametrize("hides", ["shield", "swallow"])
async def test_a_handler_that_goes_on_gains_nothing_by_it(database: Database, hides: str) -> None:
    async def stubborn(run: RunContext, _: dict[str, Json]) -> Json:
        with anyio.CancelScope(shield=hides == "shield"):
            try:
                return await calls_on(run, {})
            except BaseException:  # noqa: BLE001 - as a careless handler does
                return {"text": "aaa"}
        return {"text": "aaa"}

    provider = Priced("0.6")
    run = await executed(database, stubborn, provider)
    assert provider.calls == 2
    await stopped_for_its_cost(database, run, "1", calls=2)


async def test_what_earlier_attempts_cost_counts(database: Database) -> None:
    """A job that was paid for twenty times over does not call a twenty-first."""
    tenant = await a_payer(database, "10")
    provider = Priced("0.1")
    async with serving(database) as services:
        run = await a_run(services, calls_once, provider, tenant_id=tenant.id, money=at_most("1"))
        run._budget.exposure = Exposure(Decimal(1), None, Decimal("1.000000001"))
        await run.execute()
    assert provider.calls == 0
    assert await account(database, tenant.id) == (0, 0), "it has put nothing out"
    assert (await job_row(database, run.lease.job_id))["error_code"] == "max_cost_reached"


async def test_no_bound_no_stop(database: Database) -> None:
    async with serving(database) as services:
        run = await a_run(services, calls_once, Priced("999999", pieces=(PIECE,) * 9, token_price=PRICE))
        await run.execute()
    assert (await job_row(database, run.lease.job_id))["status"] == "succeeded"


# What calls have cost, of how many that is not known, what one may cost at worst, and whether `auto` repeats.
EXPOSED = {
    "room for one that was lost and one more": ("0", 0, "0.5", True),
    "no room for one more": ("0", 0, "0.500000001", False),
    "what is known counts": ("0.1", 0, "0.45", True),
    "what is known leaves no room": ("0.1", 0, "0.46", False),
    "each unknown one counts at its worst": ("0", 1, "0.4", False),
    "nobody knows what one may cost": ("0", 0, None, False),
    "calls that cost nothing": ("0", 3, "0", True),
}


@pytest.mark.parametrize("name", EXPOSED)
async def test_auto_repeats_a_lost_run_only_within_its_bound(database: Database, name: str) -> None:
    """Through the real reaper: the worker died with a call open."""
    spent, unknown, worst, repeats = EXPOSED[name]
    tenant = await a_payer(database, "10")
    call_usd = None if worst is None else Decimal(worst)
    money = JobMoney(max_cost_usd=Decimal(1), call_usd=call_usd, reserved_usd=Decimal(1))
    run = await running(database, tenant_id=tenant.id, money=money)
    await register(database, run.kind, Repeat.SAFE.value)
    await called(database, run.lease, 1, spent)
    for number in range(unknown):
        await called(database, run.lease, 2 + number, None)
    assert await open_call(database, run.lease, CallStart(9, "p", None))
    await expire(database, run.lease.job_id)
    await Reaper(database, HintSender(database))._look()
    row = await job_row(database, run.lease.job_id)
    assert (row["status"], row["error_code"]) == (("queued", None) if repeats else ("failed", "worker_lost"))
    assert await account(database, tenant.id) == ((1, 0) if repeats else (0, 0))
    await agrees(database)


async def test_auto_weighs_what_the_run_itself_has_cost(database: Database) -> None:
    """The connection is cut in its second call: one is known, that one counts at its worst, and so does one more."""

    async def cut_the_second(receipt: Receipt) -> None:
        if len(seen) > 1:
            raise receipt.lose("connection_cut")
        receipt.price(Decimal("0.2"), "provider")

    seen: list[Receipt] = []

    async def note(receipt: Receipt) -> None:
        seen.append(receipt)

    for worst, status in [("0.4", "queued"), ("0.41", "failed")]:
        seen.clear()
        money = JobMoney(max_cost_usd=Decimal(1), call_usd=Decimal(worst), reserved_usd=Decimal(1))
        async with serving(database) as services:
            run = await a_run(services, calls_on, Scripted(before=note, within=cut_the_second), money=money)
            await run.execute()
        assert (await job_row(database, run.lease.job_id))["status"] == status
    await agrees(database)


def test_estimates_are_exact_decimals_of_four_characters_a_token() -> None:
    price = TokenPrice(Decimal("0.15"), Decimal("0.60"))
    assert estimate_usd(price, 4_000_000, 4_000_000) == Decimal("0.75")
    assert estimate_usd(price, 1, 1) == Decimal("0.000000188")


def test_a_budget_forgets_no_call_and_counts_none_twice() -> None:
    budget = Budget(Exposure(Decimal(1)))
    budget.expect(1, Decimal("0.6"))
    budget.expect(2, Decimal("0.4"))
    assert not budget.is_passed()
    budget.expect(2, Decimal("0.400000001"))
    assert budget.is_passed()
    budget.book(1, Decimal("0.1"), may_be_more=False)
    budget.book(2, None, may_be_more=True)
    assert not budget.is_passed()
    assert (budget.exposure.spent_usd, budget.exposure.unknown_calls) == (Decimal("0.1"), 1)
