"""What becomes of a job whose attempt ended without a result: pure rules, docs/protocol.md 5.

permanent, refused       over
transient                again after a backoff, counted
throttled                again when the provider wishes, not counted
unknown                  the one unknown rule, below
handler's own error      over: nobody knows what it did
"""

import random
from dataclasses import dataclass

from schema.runs import AttemptOutcome, ExpiredRun, Failure, NextReason
from worker.handlers.kind import Repeat
from worker.providers.provider import ErrorClass, Receipt

BACKOFF_FIRST_SECONDS = 2.0
BACKOFF_MOST_SECONDS = 300.0
# Attempts that were not counted, throttled ones above all: with the backoff at its most this is over an hour.
UNCOUNTED_MOST = 20

# What a person should read instead of the general sentence.
_PERMANENT = {
    "empty_text": "The text has no words, so there is nothing to summarise; send a text with sentences.",
}


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rules look at besides the error."""

    attempt: int
    attempts: int
    max_attempts: int
    on_unknown: str
    repeat: Repeat
    has_checkpoint: bool


@dataclass(frozen=True, slots=True)
class Again:
    """The job waits for another attempt."""

    reason: NextReason
    outcome: AttemptOutcome
    delay_s: float = 0
    counted: bool = True


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
    uncounted = now.attempt - now.attempts
    if uncounted >= UNCOUNTED_MOST:
        return _exhausted(code, now, AttemptOutcome.FAILED)
    return Again(NextReason.THROTTLED, AttemptOutcome.FAILED, backoff_s(uncounted + 1, floor_s), counted=False)


def on_unknown(code: str, now: Circumstances, outcome: AttemptOutcome, reason: NextReason) -> Verdict:
    """The one unknown rule: something was sent, and nobody can say what became of it."""
    repeatable = now.repeat is Repeat.SAFE or (now.repeat is Repeat.CHECKPOINT and now.has_checkpoint)
    if now.repeat is Repeat.NEVER or now.on_unknown == "fail" or (now.on_unknown == "auto" and not repeatable):
        return _unknown_end(code, outcome)
    if now.attempts >= now.max_attempts:
        return _exhausted(code, now, outcome)
    return Again(reason, outcome)


def on_lost(expired: ExpiredRun, *, has_spent: bool) -> Verdict:
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


def _unknown_end(code: str, outcome: AttemptOutcome) -> Over:
    message = (
        f"What became of the last attempt is not known ({code}), and repeating it is not safe or was not wanted; "
        "look at the provider before you start it again."
    )
    return Over(Failure(code, "unknown", message), outcome)


def _exhausted(code: str, now: Circumstances, outcome: AttemptOutcome) -> Over:
    message = f"All {now.max_attempts} attempts are used up, the last by {code}; start it again once that is mended."
    return Over(Failure(code, "exhausted", message), outcome)
