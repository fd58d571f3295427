"""One run has exactly one end, and the end says what happened."""

from __future__ import annotations

from uuid import UUID

import anyio
import orjson
import pytest
from structlog.testing import capture_logs

from schema.calls import CallStart, open_call
from schema.database import Database
from schema.runs import AttemptOutcome, NextReason, put_back
from tests.support.jobs import attempt_rows, call_rows, check_log, claim_one, job_row, locked
from tests.support.runs import PROMPT, Scripted, a_run, calls_once, serving
from worker.handlers.kind import Json, Repeat, RunContext
from worker.providers.provider import CallFailed, ErrorClass, Receipt
from worker.run import Run, Stop

pytestmark = pytest.mark.anyio

_SECRET = "a text of the user's"


async def _emits(run: RunContext, _: dict[str, Json]) -> Json:
    await run.emit("some ")
    await run.emit("text")
    return {"text": "some text"}


async def _waits(run: RunContext, _: dict[str, Json]) -> Json:
    await run.emit("begun")
    await anyio.sleep_forever()
    return None


async def _end_of(database: Database, job_id: UUID) -> tuple[str, str | None, str | None]:
    row = await job_row(database, job_id)
    return row["status"], row["error_code"], row["error_class"]


async def _stopped_while_waiting(run: Run, why: Stop) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.execute)
        await anyio.wait_all_tasks_blocked()
        run.stop(why)


async def test_a_result_is_the_end(database: Database) -> None:
    async with serving(database) as services:
        run = await a_run(services, _emits)
        await run.execute()
    events = await check_log(database, run.lease.job_id)
    assert [event.kind for event in events] == ["status", "attempt", "chunk", "succeeded"]
    assert orjson.loads(events[-1].data) == {"status": "succeeded", "attempt": 1, "result": {"text": "some text"}}
    (attempt,) = await attempt_rows(database, run.lease.job_id)
    assert (attempt["outcome"], attempt["counted"]) == ("succeeded", True)


async def test_a_large_result_is_left_out_of_the_event(database: Database) -> None:
    async def large(_: RunContext, __: dict[str, Json]) -> Json:
        return "x" * 40_000

    async with serving(database) as services:
        run = await a_run(services, large)
        await run.execute()
    last = orjson.loads((await check_log(database, run.lease.job_id))[-1].data)
    assert last["result_url"] == f"/api/ai/jobs/{run.lease.job_id}/result"
    assert "result" not in last


async def test_unstorable_characters_are_replaced_everywhere(database: Database) -> None:
    async def dirty(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("a\x00b\ud800c")
        await run.emit("t\x00", "tool:\x00")
        await run.emit_data("n\x00", {"k\x00": ["v\ud800"]})
        return {"text\x00": "a\x00"}

    async with serving(database) as services:
        run = await a_run(services, dirty)
        await run.execute()
    events = await check_log(database, run.lease.job_id)
    assert events[2].data == "a\ufffdb\ufffdc"
    assert orjson.loads(events[-1].data)["result"] == {"text\ufffd": "a\ufffd"}
    assert len(events) == 6


async def test_a_result_that_comes_as_the_time_is_over_is_saved(database: Database) -> None:
    async def just_past(_: RunContext, __: dict[str, Json]) -> Json:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "made in time"
        return None

    async with serving(database) as services:
        run = await a_run(services, just_past, time_limit_s=0)
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "succeeded"


async def test_a_result_is_saved_under_a_deadline_of_its_own(database: Database, database_url: str) -> None:
    """Time is over and the whole run is cancelled while its end waits for a lock: it is written still."""

    async def at_once(_: RunContext, __: dict[str, Json]) -> Json:
        return "done"

    lock = "SELECT 1 FROM outlive.ai_jobs WHERE id = $1 FOR UPDATE"
    async with serving(database) as services, anyio.create_task_group() as tasks:
        run = await a_run(services, at_once, time_limit_s=0)
        async with locked(database_url, lock, run.lease.job_id):
            tasks.start_soon(run.execute)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            run.stop(Stop.OUT_OF_TIME)
    assert (await _end_of(database, run.lease.job_id))[0] == "succeeded"


async def test_time_over_with_nothing_on_the_wire_is_another_attempt(database: Database) -> None:
    async with serving(database) as services:
        run = await a_run(services, _waits, time_limit_s=0)
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "scheduled"
    assert (await job_row(database, run.lease.job_id))["next_reason"] == "transient_error"


async def test_a_handler_s_exception_ends_the_job_and_its_text_is_nowhere(database: Database) -> None:
    async def fails(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("some text")
        try:
            raise KeyError(_SECRET)  # noqa: TRY301 - an error with a cause, both with the text
        except KeyError as error:
            raise ValueError(_SECRET) from error

    with capture_logs() as logs:
        async with serving(database) as services:
            run = await a_run(services, fails)
            await run.execute()
    assert await _end_of(database, run.lease.job_id) == ("failed", "handler_error", "permanent")
    assert any(entry["event"] == "handler failed" and entry["error"] == "ValueError" for entry in logs)
    assert _SECRET not in repr(logs)
    events = await check_log(database, run.lease.job_id)
    assert [event.kind for event in events[2:]] == ["chunk", "failed"]
    contents = await database.fetchrow("SELECT * FROM outlive.job_contents WHERE job_id = $1", run.lease.job_id)
    assert _SECRET not in repr([events, dict(contents or {})])


@pytest.mark.parametrize("value", [object(), {1: "x"}, float, 1 << 70])
async def test_a_result_that_is_no_json_is_the_handler_s_error(database: Database, value: object) -> None:
    async def returns(_: RunContext, __: dict[str, Json]) -> Json:
        return value  # type: ignore[return-value]

    async with serving(database) as services:
        run = await a_run(services, returns)
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[1] == "handler_error"


async def test_an_event_that_postgresql_refuses_fails_its_own_job_only(database: Database) -> None:
    table = "SELECT tableoid::regclass::text FROM outlive.job_events LIMIT 1"

    async def poison(run: RunContext, _: dict[str, Json]) -> Json:
        await run.emit("poison")
        return "unseen"

    async with serving(database) as services:
        bad, good = await a_run(services, poison), await a_run(services, _emits)
        name = await database.fetchval(table)
        await database.execute(f"ALTER TABLE {name} ADD CONSTRAINT refuse CHECK (data <> 'poison')")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bad.execute)
            tasks.start_soon(good.execute)
    assert await _end_of(database, bad.lease.job_id) == ("failed", "event_refused", "permanent")
    assert (await _end_of(database, good.lease.job_id))[0] == "succeeded"
    assert len(await check_log(database, bad.lease.job_id)) == 3


async def test_an_end_that_postgresql_refuses_leaves_the_worker_alive(database: Database) -> None:
    """Not even its failure can be written: the run is left to the reaper, and nothing rises from it."""
    async with serving(database) as services:
        run = await a_run(services, _emits)
        await database.execute(
            "ALTER TABLE outlive.ai_jobs ADD CONSTRAINT refuse CHECK (NOT outlive.has_ended(status)) NOT VALID"
        )
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "running"


async def test_a_run_that_is_handed_back_is_not_counted(database: Database) -> None:
    async with serving(database) as services:
        run = await a_run(services, _waits)
        await _stopped_while_waiting(run, Stop.HAND_BACK)
    row = await job_row(database, run.lease.job_id)
    assert (row["status"], row["attempt"], row["attempts"], row["next_reason"]) == ("queued", 1, 0, "released")
    (attempt,) = await attempt_rows(database, run.lease.job_id)
    assert (attempt["outcome"], attempt["counted"]) == ("released", False)
    assert [event.kind for event in await check_log(database, run.lease.job_id)] == ["status", "attempt", "chunk"]


async def test_a_run_that_lost_its_lease_says_nothing_more(database: Database) -> None:
    async with serving(database) as services:
        run = await a_run(services, _waits)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.execute)
            await anyio.wait_all_tasks_blocked()
            seq = await services.appender.flush(run._writer)
            assert await put_back(database, run.lease, seq, NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
            owner = await claim_one(database, run._claimed.kind)
            run.lose_lease()
    assert await _end_of(database, run.lease.job_id) == ("running", None, None)
    assert len(await check_log(database, run.lease.job_id)) == owner.last_seq


async def test_a_handler_that_hides_a_lost_lease_changes_nothing(database: Database) -> None:
    async def stubborn(run: RunContext, _: dict[str, Json]) -> Json:
        await database.execute("UPDATE outlive.job_leases SET run_token = gen_random_uuid()")
        for _each in range(50):
            try:
                await run.emit("stale")
                await anyio.lowlevel.checkpoint()
            except Exception:  # noqa: BLE001 - just what such a handler does
                pass
        return "stale"

    async with serving(database) as services:
        run = await a_run(services, stubborn)
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "running"
    assert len(await check_log(database, run.lease.job_id)) == 2


async def test_the_row_of_a_call_is_there_before_its_request(database: Database) -> None:
    """Invariant 11, seen by the provider itself at the moment that it is called, on a connection of its own."""
    seen: list[tuple[str, object]] = []

    async def look(_: Receipt) -> None:
        rows = await database.fetch("SELECT outcome, sent_at FROM outlive.provider_calls")
        seen.extend((row["outcome"], row["sent_at"]) for row in rows)

    async with serving(database) as services:
        run = await a_run(services, calls_once, Scripted(before=look))
        await run.execute()
    assert seen == [("running", None)]
    (call,) = await call_rows(database, run.lease.job_id)
    assert (call["outcome"], call["sent_at"] is None, call["finished_at"] is None) == ("succeeded", False, False)
    events = await check_log(database, run.lease.job_id)
    assert [event.kind for event in events[2:]] == ["chunk", "external", "succeeded"]
    assert orjson.loads(events[-1].data)["result"] == {"text": "ab"}


async def test_a_stale_run_sends_nothing(database: Database) -> None:
    sent: list[Receipt] = []

    async def note(receipt: Receipt) -> None:
        sent.append(receipt)

    async def loses_then_calls(run: RunContext, _: dict[str, Json]) -> Json:
        await database.execute("UPDATE outlive.job_leases SET run_token = gen_random_uuid()")
        return await calls_once(run, {})

    async with serving(database) as services:
        run = await a_run(services, loses_then_calls, Scripted(before=note))
        await run.execute()
    assert sent == []
    assert await call_rows(database, run.lease.job_id) == []


@pytest.mark.parametrize(("repeat", "end"), [(Repeat.SAFE, "queued"), (Repeat.NEVER, "failed")])
async def test_a_call_that_was_stopped_on_the_wire_is_unconfirmed(
    database: Database, repeat: Repeat, end: str
) -> None:
    sent = anyio.Event()

    async def hang(_: Receipt) -> None:
        sent.set()
        await anyio.sleep_forever()

    async with serving(database) as services, anyio.create_task_group() as tasks:
        run = await a_run(services, calls_once, Scripted(within=hang), repeat=repeat)
        tasks.start_soon(run.execute)
        await sent.wait()
        run.stop(Stop.OUT_OF_TIME)
    (call,) = await call_rows(database, run.lease.job_id)
    assert (call["outcome"], call["cost_usd"], call["cost_is_lower_bound"]) == ("cancel_unconfirmed", None, True)
    events = await check_log(database, run.lease.job_id)
    assert orjson.loads(events[3].data) == {"attempt": 1, "call": 1, "outcome": "cancel_unconfirmed"}
    assert (await _end_of(database, run.lease.job_id))[0] == end


async def test_time_over_with_a_request_on_the_wire_follows_the_unknown_rule(database: Database) -> None:
    async def hang(_: Receipt) -> None:
        await anyio.sleep_forever()

    async with serving(database) as services:
        run = await a_run(services, calls_once, Scripted(within=hang), time_limit_s=1, on_unknown="fail")
        await run.execute()
    assert await _end_of(database, run.lease.job_id) == ("failed", "time_limit", "unknown")


@pytest.mark.parametrize(
    ("error_class", "status", "outcome"),
    [
        (ErrorClass.PERMANENT, "failed", "failed"),
        (ErrorClass.REFUSED, "failed", "failed"),
        (ErrorClass.TRANSIENT, "scheduled", "failed"),
        (ErrorClass.THROTTLED, "scheduled", "failed"),
        (ErrorClass.UNKNOWN, "queued", "unknown"),
    ],
)
async def test_a_call_that_failed_means_what_its_class_says(
    database: Database, error_class: ErrorClass, status: str, outcome: str
) -> None:
    async def fails(receipt: Receipt) -> None:
        raise receipt.lose("cut") if error_class is ErrorClass.UNKNOWN else receipt.fail(error_class, "no")

    async with serving(database) as services:
        run = await a_run(services, calls_once, Scripted(within=fails))
        await run.execute()
    (attempt,) = await attempt_rows(database, run.lease.job_id)
    assert ((await _end_of(database, run.lease.job_id))[0], attempt["outcome"]) == (status, outcome)
    assert attempt["counted"] == (error_class is not ErrorClass.THROTTLED)
    await check_log(database, run.lease.job_id)


async def test_calls_side_by_side_that_fail_mean_what_their_class_says(database: Database) -> None:
    """A handler's own task group wraps the error; it is the provider's all the same."""

    async def fails(receipt: Receipt) -> None:
        raise receipt.fail(ErrorClass.TRANSIENT, "no")

    async def two_calls(run: RunContext, _: dict[str, Json]) -> Json:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.call, PROMPT)
            tasks.start_soon(run.call, PROMPT)
        return None

    async with serving(database) as services:
        run = await a_run(services, two_calls, Scripted(within=fails))
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "scheduled"
    assert all(call["outcome"] != "running" for call in await call_rows(database, run.lease.job_id))


async def test_calls_side_by_side_are_all_closed_and_said(database: Database) -> None:
    """Their ends are commits of one log: none may take another's place for its own."""

    async def side_by_side(run: RunContext, _: dict[str, Json]) -> Json:
        async with anyio.create_task_group() as tasks:
            for _each in range(6):
                tasks.start_soon(run.call, PROMPT)
        return None

    async with serving(database) as services:
        run = await a_run(services, side_by_side, Scripted())
        await run.execute()
    assert [call["outcome"] for call in await call_rows(database, run.lease.job_id)] == ["succeeded"] * 6
    events = await check_log(database, run.lease.job_id)
    said = sorted(orjson.loads(event.data)["call"] for event in events if event.kind == "external")
    assert said == [1, 2, 3, 4, 5, 6]


async def test_a_handler_may_deal_with_a_failed_call_itself(database: Database) -> None:
    async def fails(receipt: Receipt) -> None:
        raise receipt.fail(ErrorClass.REFUSED, "no")

    async def tries(run: RunContext, _: dict[str, Json]) -> Json:
        try:
            await run.call(PROMPT)
        except CallFailed:
            return "without it"
        return None

    async with serving(database) as services:
        run = await a_run(services, tries, Scripted(within=fails))
        await run.execute()
    assert (await _end_of(database, run.lease.job_id))[0] == "succeeded"


async def test_a_call_that_is_open_at_the_end_is_closed_with_it(database: Database) -> None:
    """Invariant 11, for one whose closing could not be confirmed."""

    async def leaves_open(_: RunContext, __: dict[str, Json]) -> Json:
        assert await open_call(database, run.lease, CallStart(1, "p", None))
        return None

    async with serving(database) as services:
        run = await a_run(services, leaves_open)
        await run.execute()
    (call,) = await call_rows(database, run.lease.job_id)
    assert (call["outcome"], call["cost_usd"]) == ("unknown", None)
