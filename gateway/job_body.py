"""A body of POST /api/ai/jobs, judged as a whole: from bytes to what is small, so that it can be done anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.job_request import JobRequest, check_form, read_request
from gateway.problems import Problem
from gateway.strict_json import digest, parse
from schema.kinds import JobKind


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the body is compared by; and the job that it asks for, or what is wrong with it.

    `unknown_kind` names a kind that was not among those given: with it in hand the body is judged again.
    """

    request_hash: bytes
    request: JobRequest | None = None
    problem: Problem | None = None
    unknown_kind: str | None = None


def judge(body: bytes, kinds: Mapping[str, JobKind]) -> Judgement:
    """Raises Problem bad_json; any other fault stands in the judgement, since a replay goes before it."""
    value = parse(body)
    request_hash = digest(value)
    try:
        check_form(value)
        kind = kinds.get(value["kind"])
        if kind is None:
            return Judgement(request_hash, unknown_kind=value["kind"])
        return Judgement(request_hash, read_request(value, kind))
    except Problem as problem:
        return Judgement(request_hash, problem=problem)
