"""Recording a job for a tenant that may have to be refused one: what was accepted once stays accepted."""

from collections.abc import Awaitable, Callable

from gateway.gateway import Gateway
from gateway.job_replay import KeyOf, find_replay
from gateway.problems import Problem
from schema.jobs import Job
from schema.money import CostLimitRequired, NotAdmitted, QueueFull, QuotaExceeded


async def record_once(gateway: Gateway, of: KeyOf, record: Callable[[], Awaitable[bool]]) -> Job | None:
    """None where `record` made a job, else the one that the key had made, in a race as well; None too where there is
    neither. Raises Problem queue_full, quota_exceeded, cost_limit_required.
    """
    try:
        if await record():
            gateway.hints.work()
            return None
    except NotAdmitted as refusal:
        # Its twin may have taken the last place: then this one is a replay, which no limit concerns.
        if (earlier := await find_replay(gateway, of)) is None:
            raise _problem(refusal) from None
        return earlier
    return await find_replay(gateway, of)


def _problem(refusal: NotAdmitted) -> Problem:
    text = str(refusal)
    detail = f"{text[0].upper()}{text[1:]}."
    match refusal:
        case QueueFull():
            return Problem("queue_full", detail)
        case QuotaExceeded():
            return Problem("quota_exceeded", detail)
        case CostLimitRequired():
            return Problem("cost_limit_required", detail)
        case _:
            raise refusal
