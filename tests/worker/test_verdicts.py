"""docs/protocol.md 5 as a table: what becomes of a job whose attempt ended without a result."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product
from uuid import uuid4

import pytest

from schema.job_ids import new_job_id
from schema.runs import AttemptOutcome, ExpiredRun, Exposure, Lease, NextReason
from worker.handlers.kind import Repeat
from worker.providers.provider import CallOutcome, ErrorClass, Receipt
from worker.verdicts import (
    BACKOFF_FIRST_SECONDS,
    BACKOFF_MOST_SECONDS,
    IDLE_RELEASES_MOST,
    THROTTLED_MOST_SECONDS,
    Again,
    Circumstances,
    Left,
    Over,
    Verdict,
    backoff_s,
    on_call_failed,
    on_handler_error,
    on_lost,
    on_released,
    on_transient,
    on_unknown,
)

_ON_UNKNOWN = ("auto", "retry", "fail")


def _now(
    repeat: Repeat = Repeat.SAFE,
    wish: str = "auto",
    *,
    attempts: int = 1,
    attempt: int | None = None,
    has_checkpoint: bool = False,
) -> Circumstances:
    return Circumstances(attempt or attempts, attempts, 3, wish, repeat, has_checkpoint)


def _kind_of(verdict: Verdict) -> str:
    match verdict:
        case Again():
            return "again"
        case Over():
            return verdict.failure.error_class
        case other:
            raise AssertionError(other)


def _failed(error_class: ErrorClass, retry_after_s: float | None = None) -> Receipt:
    return Receipt(outcome=CallOutcome.FAILED, error_class=error_class, code="some_code", retry_after_s=retry_after_s)


# (repeat, has a checkpoint, on_unknown) of all that may be done again; everything else ends as unknown.
_MAY_REPEAT = {
    *product([Repeat.SAFE], [False, True], ["auto", "retry"]),
    (Repeat.CHECKPOINT, True, "auto"),
    *product([Repeat.CHECKPOINT], [False, True], ["retry"]),
}


@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize(("repeat", "has_checkpoint", "wish"), list(product(Repeat, [False, True], _ON_UNKNOWN)))
def test_the_unknown_rule(repeat: Repeat, has_checkpoint: bool, wish: str, attempts: int) -> None:
    now = _now(repeat, wish, attempts=attempts, has_checkpoint=has_checkpoint)
    verdict = on_unknown("cut", now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)
    if (repeat, has_checkpoint, wish) not in _MAY_REPEAT:
        assert _kind_of(verdict) == "unknown"
    elif attempts == 3:
        assert _kind_of(verdict) == "exhausted"
    else:
        assert verdict == Again(NextReason.UNKNOWN_RETRY, AttemptOutcome.UNKNOWN)


@pytest.mark.parametrize(
    ("error_class", "end"), [(ErrorClass.PERMANENT, "permanent"), (ErrorClass.REFUSED, "refused")]
)
@pytest.mark.parametrize(("repeat", "wish"), list(product(Repeat, _ON_UNKNOWN)))
def test_permanent_and_refused_end_at_once(error_class: ErrorClass, end: str, repeat: Repeat, wish: str) -> None:
    verdict = on_call_failed(_failed(error_class), _now(repeat, wish))
    assert _kind_of(verdict) == end
    assert isinstance(verdict, Over)
    assert verdict.outcome is AttemptOutcome.FAILED


def test_an_error_of_no_class_is_permanent() -> None:
    assert _kind_of(on_call_failed(Receipt(), _now())) == "permanent"


def test_an_unknown_call_follows_the_unknown_rule() -> None:
    receipt = _failed(ErrorClass.UNKNOWN)
    assert on_call_failed(receipt, _now()) == Again(NextReason.UNKNOWN_RETRY, AttemptOutcome.UNKNOWN)
    assert _kind_of(on_call_failed(receipt, _now(wish="fail"))) == "unknown"


@pytest.mark.parametrize("wish", _ON_UNKNOWN)
@pytest.mark.parametrize("repeat", [Repeat.SAFE, Repeat.CHECKPOINT])
def test_transient_waits_and_counts_whatever_the_wish(repeat: Repeat, wish: str) -> None:
    verdict = on_call_failed(_failed(ErrorClass.TRANSIENT, 7), _now(repeat, wish))
    assert isinstance(verdict, Again)
    assert (verdict.reason, verdict.outcome, verdict.counted) == ("transient_error", "failed", True)
    assert verdict.delay_s >= 7 + BACKOFF_FIRST_SECONDS / 2


def test_transient_ends_when_the_attempts_are_used_up() -> None:
    assert _kind_of(on_transient("x", _now(attempts=3))) == "exhausted"


def test_throttled_waits_as_long_as_it_was_told_and_does_not_count() -> None:
    verdict = on_call_failed(_failed(ErrorClass.THROTTLED, 40), _now(attempts=3))
    assert isinstance(verdict, Again)
    assert (verdict.reason, verdict.counted) == ("throttled", False)
    assert verdict.delay_s >= 40


def test_throttling_ends_after_an_hour_in_all() -> None:
    throttled = _failed(ErrorClass.THROTTLED, 40)
    almost = replace(_now(), throttled_s=THROTTLED_MOST_SECONDS - 43)
    assert _kind_of(on_call_failed(throttled, almost)) == "again"
    assert (
        _kind_of(on_call_failed(throttled, replace(_now(), throttled_s=THROTTLED_MOST_SECONDS - 39))) == "exhausted"
    )


def test_a_wish_to_wait_past_the_hour_ends_the_job_at_once() -> None:
    assert _kind_of(on_call_failed(_failed(ErrorClass.THROTTLED, 4000), _now())) == "exhausted"


def test_the_sixth_hand_back_without_a_word_ends_the_job() -> None:
    silent = replace(_now(), idle_releases=IDLE_RELEASES_MOST)
    assert _kind_of(on_released(replace(silent, idle_releases=IDLE_RELEASES_MOST - 1), has_written=False)) == "again"
    assert _kind_of(on_released(silent, has_written=False)) == "exhausted"
    assert on_released(silent, has_written=True) == Again(
        NextReason.RELEASED, AttemptOutcome.RELEASED, counted=False, idle=False
    )


_USD = Decimal("0.01")


@pytest.mark.parametrize(
    ("exposure", "end"),
    [
        (Exposure(), "again"),
        (Exposure(max_cost_usd=3 * _USD, call_usd=_USD, spent_usd=_USD, unknown_calls=1), "again"),
        (Exposure(max_cost_usd=3 * _USD, call_usd=_USD, spent_usd=_USD, unknown_calls=2), "unknown"),
        (Exposure(max_cost_usd=3 * _USD, call_usd=None, unknown_calls=1), "unknown"),
    ],
)
def test_auto_repeats_only_what_the_cost_limit_still_allows(exposure: Exposure, end: str) -> None:
    for wish in ("auto", "retry"):
        now = replace(_now(wish=wish), exposure=exposure)
        verdict = on_unknown("cut", now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)
        assert _kind_of(verdict) == (end if wish == "auto" else "again")


@pytest.mark.parametrize("error_class", list(ErrorClass))
@pytest.mark.parametrize("wish", _ON_UNKNOWN)
def test_a_kind_that_is_never_safe_is_never_started_twice(error_class: ErrorClass, wish: str) -> None:
    now = _now(Repeat.NEVER, wish, has_checkpoint=True)
    assert isinstance(on_call_failed(_failed(error_class), now), Over)
    for open_calls in (False, True):
        assert isinstance(on_lost(_expired(Repeat.NEVER, wish), has_spent=open_calls), Over)


def _expired(repeat: Repeat, wish: str, attempts: int = 1) -> ExpiredRun:
    lease = Lease(new_job_id(), uuid4(), attempts)
    return ExpiredRun(
        lease, 2, attempts, 3, wish, repeat.value, has_checkpoint=False, exposure=Exposure(), cancel_by=None
    )


@pytest.mark.parametrize("wish", _ON_UNKNOWN)
@pytest.mark.parametrize("repeat", [Repeat.SAFE, Repeat.CHECKPOINT])
def test_a_lost_run_that_had_sent_nothing_goes_back(repeat: Repeat, wish: str) -> None:
    verdict = on_lost(_expired(repeat, wish), has_spent=False)
    assert verdict == Again(NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)
    assert _kind_of(on_lost(_expired(repeat, wish, 3), has_spent=False)) == "exhausted"


@pytest.mark.parametrize(
    ("repeat", "wish", "end"),
    [
        (Repeat.SAFE, "auto", "again"),
        (Repeat.SAFE, "fail", "unknown"),
        (Repeat.CHECKPOINT, "auto", "unknown"),
        (Repeat.CHECKPOINT, "retry", "again"),
    ],
)
def test_a_lost_run_with_an_open_call_follows_the_unknown_rule(repeat: Repeat, wish: str, end: str) -> None:
    verdict = on_lost(_expired(repeat, wish), has_spent=True)
    assert _kind_of(verdict) == end
    assert isinstance(verdict, Again | Over)
    assert verdict.outcome is AttemptOutcome.LOST


@pytest.mark.parametrize("wish", _ON_UNKNOWN)
@pytest.mark.parametrize("repeat", list(Repeat))
@pytest.mark.parametrize("left", [None, *Left])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_was_left_running_is_gone_on_with_before_anything_is_bought_again(
    wish: str, repeat: Repeat, left: Left | None, has_checkpoint: bool
) -> None:
    now = replace(_now(repeat, wish, has_checkpoint=has_checkpoint), left=left)
    lost = on_lost(
        replace(_expired(repeat, wish), has_checkpoint=has_checkpoint),
        has_spent=True,
        left=left,
    )
    repeatable = repeat is Repeat.SAFE or (repeat is Repeat.CHECKPOINT and has_checkpoint)
    for verdict in (on_call_failed(_failed(ErrorClass.UNKNOWN), now), lost):
        if repeat is Repeat.NEVER:
            assert isinstance(verdict, Over)
        elif left is Left.SEAMLESS:
            assert isinstance(verdict, Again)
            assert verdict.reason is NextReason.REATTACHED
        elif left is Left.FROM_START and repeatable:
            assert isinstance(verdict, Again)
            assert verdict.reason is not NextReason.REATTACHED
        else:
            assert isinstance(verdict, Again) == (wish == "retry" or (wish == "auto" and repeatable))


def test_what_was_left_running_is_not_gone_on_with_for_ever() -> None:
    now = replace(_now(attempts=3), left=Left.SEAMLESS)
    assert _kind_of(on_unknown("cut", now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)) == "exhausted"


def test_a_run_that_is_handed_back_is_gone_on_with_and_does_not_count() -> None:
    verdict = on_released(replace(_now(), left=Left.SEAMLESS), has_written=True)
    assert verdict == Again(NextReason.REATTACHED, AttemptOutcome.RELEASED, counted=False)
    assert on_released(_now(), has_written=True) == replace(verdict, reason=NextReason.RELEASED)


def test_a_handler_s_own_error_ends_the_job() -> None:
    verdict = on_handler_error()
    assert isinstance(verdict, Over)
    assert verdict.failure.code == "handler_error"


def test_backoff_grows_is_jittered_and_bounded() -> None:
    for attempts in range(1, 40):
        most = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** (attempts - 1))
        waits = {backoff_s(attempts, 3) for _ in range(20)}
        assert len(waits) > 1
        assert all(3 + most / 2 <= wait <= 3 + most for wait in waits)


def test_every_message_says_what_to_do_and_none_is_a_text_from_outside() -> None:
    receipts = [_failed(error_class) for error_class in ErrorClass]
    for verdict in [on_handler_error(), *(on_call_failed(each, _now(wish="fail", attempts=3)) for each in receipts)]:
        if isinstance(verdict, Over):
            assert verdict.failure.message.endswith(".")
            assert ";" in verdict.failure.message
