"""What the tables say, as Prometheus has it: docs/protocol.md, Metrics and statistics.

No label holds a job, a user or a tenant: each value of a label is a series that somebody keeps for ever. Money is
summed exactly and becomes a float only in the text, which knows no other numbers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from schema.jobs import JobStatus
from schema.totals import CallTotal, JobTotal, Totals

PREFIX = "outlive_"
# A provider without a list of models takes whatever name a caller thinks of. The models that were used first keep
# their names, so that no series changes its meaning later; the rest share one.
MODELS_MOST = 200
OTHER_MODEL = "other"
_ATTEMPTS_BUCKETS = (1, 2, 3, 5, 10, 20)

_Labels = tuple[str, ...]
_Counts = Iterable[tuple[_Labels, int | Decimal]]


def families_of_tables(found: Totals) -> Iterator[Metric]:
    """All that the tables say."""
    named = _named_models(found)
    yield from _of_jobs(found.jobs, named)
    yield from _of_calls(found.calls, named)
    reasons = (((reason,), count) for reason, count in found.retries.items())
    yield _counter("job_retries", "Attempts after the first, by their reason.", ("reason",), reasons)
    lost = (((), found.leases_expired),)
    yield _counter("lease_expired", "Attempts that lost their lease: their worker did not renew it.", (), lost)


def gauge(name: str, text: str, value: float) -> Metric:
    """One number that goes up and down."""
    return GaugeMetricFamily(PREFIX + name, text, value)


def _of_jobs(jobs: Iterable[JobTotal], named: set[_Labels]) -> Iterator[Metric]:
    ended = [job for job in jobs if JobStatus(job.status).ended]
    accepted = [job for job in ended if job.status == JobStatus.SUCCEEDED]
    created = (((job.kind,), job.jobs) for job in jobs)
    yield _counter("jobs_created", "Jobs that were recorded.", ("kind",), created)
    models = (((job.kind, *_model(job, named)), job.jobs) for job in accepted)
    yield _counter("jobs_accepted", "Jobs whose result is stored.", ("kind", "provider", "model"), models)
    ends = (((job.kind, job.status), job.jobs) for job in ended)
    yield _counter("jobs_finished", "Jobs that have ended.", ("kind", "status"), ends)
    none = (((status.value,), 0) for status in JobStatus)
    standing = (((job.status,), job.jobs) for job in jobs)
    yield _gauges("jobs", "Jobs as they stand now.", ("status",), (*none, *standing))
    waited_s = max((job.waited_s or 0 for job in jobs), default=0)
    yield gauge("oldest_queued_seconds", "How long the oldest queued job could have run; 0 without one.", waited_s)
    yield _attempts(ended)


def _attempts(ended: Iterable[JobTotal]) -> Metric:
    """A job that was never claimed had none."""
    jobs_by_attempts = Counter[int]()
    for job in ended:
        jobs_by_attempts[job.attempt] += job.jobs
    buckets = [
        (str(float(most)), sum(jobs for attempts, jobs in jobs_by_attempts.items() if attempts <= most))
        for most in (*_ATTEMPTS_BUCKETS, float("inf"))
    ]
    buckets[-1] = ("+Inf", buckets[-1][1])
    attempts = sum(attempts * jobs for attempts, jobs in jobs_by_attempts.items())
    text = "Attempts of each job that has ended."
    return HistogramMetricFamily(f"{PREFIX}job_attempts", text, buckets=buckets, sum_value=attempts)


def _of_calls(calls: Iterable[CallTotal], named: set[_Labels]) -> Iterator[Metric]:
    attempts = (((*_model(call, named), call.outcome), call.calls) for call in calls)
    yield _counter("provider_attempts", "Requests on the wire.", ("provider", "model", "outcome"), attempts)
    unknown = (((call.provider, call.phase), call.calls) for call in calls if call.outcome == "unknown")
    text = "Requests of which nobody can say what became, by how far they had come."
    yield _counter("provider_unknown_outcomes", text, ("provider", "phase"), unknown)
    cost = (
        ((*_model(call, named), call.cost_source), call.cost_usd)
        for call in calls
        if call.cost_usd is not None and call.cost_source is not None
    )
    yield _counter("provider_cost_usd", "What is known of their cost.", ("provider", "model", "source"), cost)
    costless = ((_model(call, named), call.cost_unknown) for call in calls)
    text = "Requests whose cost, or all of it, is not known (yet)."
    yield _gauges("provider_calls_with_unknown_cost", text, ("provider", "model"), costless)


def _named_models(found: Totals) -> set[_Labels]:
    """The (provider, model) that are told apart."""
    first_at: dict[_Labels, datetime] = {}
    used: list[JobTotal | CallTotal] = [*found.jobs, *found.calls]
    for each in used:
        first_at[_pair(each)] = min(each.first_at, first_at.get(_pair(each), each.first_at))
    return set(sorted(first_at, key=lambda pair: (first_at[pair], pair))[:MODELS_MOST])


def _pair(each: JobTotal | CallTotal) -> _Labels:
    return (each.provider or "", each.model or "")


def _model(each: JobTotal | CallTotal, named: set[_Labels]) -> _Labels:
    """Provider and model as labels; empty where there is none."""
    pair = _pair(each)
    return pair if pair in named else (pair[0], OTHER_MODEL)


def _counter(name: str, text: str, labels: _Labels, counts: _Counts) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for values, total in _summed(counts).items():
        family.add_metric(values, float(total))
    return family


def _gauges(name: str, text: str, labels: _Labels, counts: _Counts) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, total in _summed(counts).items():
        family.add_metric(values, float(total))
    return family


def _summed(counts: _Counts) -> dict[_Labels, int | Decimal]:
    """Of all that have the same labels, in their order."""
    sums: dict[_Labels, int | Decimal] = {}
    for labels, count in counts:
        sums[labels] = sums.get(labels, 0) + count
    return dict(sorted(sums.items()))
