"""What becomes of a job whose attempt ended without a result: pure rules, docs/protocol.md 5.

permanent, refused       over
transient                again after a backoff, counted
left running             on with the same generation, counted unless handed back
throttled                again when the provider wishes, not counted, an hour in all
handed back              again at once, not counted, five times in a row without a word
budget                   over
unknown                  the one unknown rule, below
handler's own error      over: nobody knows what it did
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum, auto

from schema.runs import AttemptOutcome, ExpiredRun, Exposure, Failure, NextReason
from worker.handlers.kind import Repeat
from worker.providers.provider import ErrorClass, Receipt

BACKOFF_FIRST_SECONDS = 2.0
BACKOFF_MOST_SECONDS = 300.0
# Both are caps of attempts that do not count, without which such a job would never end; docs/protocol.md 5.
THROTTLED_MOST_SECONDS = 3600
IDLE_RELEASES_MOST = 5

# What a person should read instead of the general sentence.
_PERMANENT = {
    "empty_text": "The text has no words, so there is nothing to summarise; send a text with sentences.",
}


class Left(Enum):
    """What an attempt leaves running at a provider that can be gone on with."""

    SEAMLESS = auto()
    """Another attempt goes on where this one was, and no text is void."""
    FROM_START = auto()
    """Another attempt hears it again from its start, and pays nothing for that."""

    @classmethod
    def of(cls, *, seamless: bool) -> Left:
        """By whether the log holds nothing else since the last checkpoint."""
        return cls.SEAMLESS if seamless else cls.FROM_START


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rules look at besides the error."""

    attempt: int
    attempts: int
    max_attempts: int
    on_unknown: str
    repeat: Repeat
    has_checkpoint: bool
    exposure: Exposure = field(default_factory=Exposure)
    throttled_s: int = 0
    idle_releases: int = 0
    left: Left | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether a second execution does no harm, money aside."""
        return self.repeat is Repeat.SAFE or (self.repeat is Repeat.CHECKPOINT and self.has_checkpoint)

    @property
    def can_reattach(self) -> bool:
        """Whether another attempt can go on with what this one leaves running."""
        return self.repeat is not Repeat.NEVER and (
            self.left is Left.SEAMLESS or (self.left is not None and self.is_repeatable)
        )


@dataclass(frozen=True, slots=True)
class Again:
    """The job waits for another attempt."""

    reason: NextReason
    outcome: AttemptOutcome
    delay_s: float = 0
    counted: bool = True
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Over:
    """The job has failed."""

    failure: Failure
    outcome: AttemptOutcome


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody wanted the job to end."""

    outcome: AttemptOutcome = AttemptOutcome.CANCELLED


Verdict = Again | Over | Cancelled


def backoff_s(attempts: int, floor_s: float = 0) -> float:
    """Exponential with jitter, never under what the provider asked for; seconds."""
    most = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** max(0, attempts - 1))
    return floor_s + most * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, keeps no secret


def on_call_failed(receipt: Receipt, now: Circumstances) -> Verdict:
    """After a provider call that did not succeed and that the handler did not deal with."""
    code = receipt.code or "provider_error"
    match receipt.error_class:
        case ErrorClass.REFUSED:
            message = "The provider refused to answer this input; change the input."
            return Over(Failure(code, "refused", message), AttemptOutcome.FAILED)
        case ErrorClass.TRANSIENT:
            return on_transient(code, now, receipt.retry_after_s or 0)
        case ErrorClass.THROTTLED:
            return _on_throttled(code, now, receipt.retry_after_s or 0)
        case ErrorClass.UNKNOWN:
            return on_unknown(code, now, AttemptOutcome.UNKNOWN, NextReason.UNKNOWN_RETRY)
        case _:
            message = _PERMANENT.get(
                code, f"The provider rejected the request for good ({code}); change the request."
            )
            return Over(Failure(code, "permanent", message), AttemptOutcome.FAILED)


def on_transient(code: str, now: Circumstances, floor_s: float = 0) -> Verdict:
    """After an error that may pass and that certainly produced nothing to be paid twice."""
    if now.repeat is Repeat.NEVER:
        return _unknown_end(code, AttemptOutcome.FAILED)
    if now.attempts >= now.max_attempts:
        return _exhausted(code, now, AttemptOutcome.FAILED)
    return Again(NextReason.TRANSIENT_ERROR, AttemptOutcome.FAILED, backoff_s(now.attempts, floor_s))


def _on_throttled(code: str, now: Circumstances, floor_s: float) -> Verdict:
    if now.repeat is Repeat.NEVER:
        return _unknown_end(code, AttemptOutcome.FAILED)
    delay_s = backoff_s(now.attempt - now.attempts + 1, floor_s)
    if now.throttled_s + delay_s > THROTTLED_MOST_SECONDS:
        message = (
            f"The provider would have made this job wait for more than an hour in all, the last time by {code}; "
            "start it again when the provider takes more."
        )
        return Over(Failure(code, "exhausted", message), AttemptOutcome.FAILED)
    return Again(NextReason.THROTTLED, AttemptOutcome.FAILED, delay_s, counted=False)


def on_released(now: Circumstances, *, has_written: bool) -> Verdict:
    """After a hand-back. A job that workers take and hand back without a word is not handed around for ever."""
    if not has_written and now.idle_releases >= IDLE_RELEASES_MOST:
        message = (
            f"Workers have handed this job back {now.idle_releases + 1} times before it said anything; "
            "look why they stop so soon, then start it again."
        )
        return Over(Failure("released_too_often", "exhausted", message), AttemptOutcome.RELEASED)
    reason = NextReason.REATTACHED if now.can_reattach and now.left is Left.SEAMLESS else NextReason.RELEASED
    return Again(reason, AttemptOutcome.RELEASED, counted=False, idle=not has_written)


def on_unknown(code: str, now: Circumstances, outcome: AttemptOutcome, reason: NextReason) -> Verdict:
    """The one unknown rule: something was sent, and nobody can say what became of it.

    Going on with it buys nothing, so that is tried before what the job wants where it would be bought again.
    """
    if now.can_reattach and now.attempts < now.max_attempts:
        return _reattach(now, outcome, reason)
    repeatable = now.is_repeatable and now.exposure.allows_another
    if now.repeat is Repeat.NEVER or now.on_unknown == "fail" or (now.on_unknown == "auto" and not repeatable):
        return _unknown_end(code, outcome)
    if now.attempts >= now.max_attempts:
        return _exhausted(code, now, outcome)
    return Again(reason, outcome)


def _reattach(now: Circumstances, outcome: AttemptOutcome, reason: NextReason) -> Again:
    # Whoever cut the connection may do so again at once; a worker that is gone has nothing to do with the provider.
    delay_s = backoff_s(now.attempts) if outcome is AttemptOutcome.UNKNOWN else 0
    return Again(NextReason.REATTACHED if now.left is Left.SEAMLESS else reason, outcome, delay_s)


def on_lost(expired: ExpiredRun, *, has_spent: bool, left: Left | None = None) -> Verdict:
    """After the holder of a lease is gone. Where nothing had been sent the job simply goes back."""
    if expired.cancel_by is not None:
        return Cancelled(AttemptOutcome.LOST)
    now = Circumstances(
        attempt=expired.lease.attempt,
        attempts=expired.attempts,
        max_attempts=expired.max_attempts,
        on_unknown=expired.on_unknown,
        repeat=Repeat(expired.repeat),
        has_checkpoint=expired.has_checkpoint,
        exposure=expired.exposure,
        left=left,
    )
    if has_spent or now.repeat is Repeat.NEVER:
        return on_unknown("worker_lost", now, AttemptOutcome.LOST, NextReason.LEASE_EXPIRED)
    if now.attempts >= now.max_attempts:
        return _exhausted("worker_lost", now, AttemptOutcome.LOST)
    return Again(NextReason.LEASE_EXPIRED, AttemptOutcome.LOST)


def on_handler_error() -> Verdict:
    """After an exception of the handler's own: what it did is not known, so it is not done twice."""
    message = "The handler of this kind failed; its worker's log says where."
    return Over(Failure("handler_error", "permanent", message), AttemptOutcome.FAILED)


def on_budget() -> Verdict:
    """After the calls so far have cost more than the job may. How much, the user of a token is not told."""
    message = "The job was stopped: its calls cost more than its max_cost_usd; allow more, or ask for less."
    return Over(Failure("max_cost_reached", "budget", message), AttemptOutcome.FAILED)


def _unknown_end(code: str, outcome: AttemptOutcome) -> Over:
    message = (
        f"What became of the last attempt is not known ({code}), and repeating it is not safe or was not wanted; "
        "look at the provider before you start it again."
    )
    return Over(Failure(code, "unknown", message), outcome)


def _exhausted(code: str, now: Circumstances, outcome: AttemptOutcome) -> Over:
    message = f"All {now.max_attempts} attempts are used up, the last by {code}; start it again once that is mended."
    return Over(Failure(code, "exhausted", message), outcome)
