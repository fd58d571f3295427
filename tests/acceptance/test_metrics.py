"""/metrics, /livez and /readyz on the admin ports of real processes, read as Prometheus reads them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gateway.metric_families import MODELS_MOST, families_of_tables
from schema.database import Database
from schema.totals import CallTotal, JobTotal, Totals
from tests.acceptance.conftest import problem
from tests.faults.house import House, open_house, says, write_providers
from tests.support.api import make_key
from tests.support.databases import make_migrated
from tests.support.fake_provider import FakeProvider
from tests.support.jobs import locked
from tests.support.postgres import DurablePostgres
from tests.support.processes import ServerProcess, run
from tests.support.provider_scripts import SCRIPTS, Script, answering, streaming
from tests.support.servers import Environment, environment_for, start_gateway, start_worker
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

Samples = Mapping[tuple[str, ...], float]

ANSWER = streaming("Hello, ", "world.")
OF_TABLES = {
    "outlive_jobs_created_total": {"kind"},
    "outlive_jobs_accepted_total": {"kind", "provider", "model"},
    "outlive_jobs_finished_total": {"kind", "status"},
    "outlive_job_retries_total": {"reason"},
    "outlive_lease_expired_total": set(),
    "outlive_provider_attempts_total": {"provider", "model", "outcome"},
    "outlive_provider_unknown_outcomes_total": {"provider", "phase"},
    "outlive_provider_cost_usd_total": {"provider", "model", "source"},
    "outlive_provider_calls_with_unknown_cost": {"provider", "model"},
    "outlive_job_attempts_bucket": {"le"},
    "outlive_jobs": {"status"},
    "outlive_oldest_queued_seconds": set(),
}
OF_PROCESS = {"outlive_tables_counted", "outlive_sse_connections", "outlive_listener_up"}


async def text_of(url: str, path: str = "/metrics", accept: str = "") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.get(f"{url}{path}", headers={"Accept": accept} if accept else {})


async def samples(url: str) -> Samples:
    """{(name, its label values in the order of the labels' names): value}, parsed strictly."""
    answer = await text_of(url)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def of_tables(found: Samples) -> Samples:
    """Without what time or the process alone changes."""
    names = set(OF_TABLES) - {"outlive_oldest_queued_seconds"} | {"outlive_job_attempts_sum"}
    return {key: value for key, value in found.items() if key[0] in names}


async def once(url: str, **wanted: float) -> Samples:
    """The samples once those without labels in `wanted` are so; what is shown may be some seconds old."""

    async def so() -> Samples | None:
        found = await samples(url)
        return found if all(found[f"outlive_{name}",] == value for name, value in wanted.items()) else None

    found = await until(so, 30, what=f"{wanted} at {url}")
    assert found is not None
    return found


@asynccontextmanager
async def worker_for(house: House, fake: FakeProvider, folder: Path) -> AsyncIterator[ServerProcess]:
    providers = write_providers(folder, fake_url=fake.base_url)
    async with start_worker(house.url, {"OUTLIVE_LEASE_SECONDS": "2"}, providers=providers) as worker:
        yield worker


async def ended(house: House, fake: FakeProvider, *scripts: Script) -> dict[str, Any]:
    """One job, each of its requests met by the next script."""
    left = iter(scripts)

    async def script(exchange: Any) -> None:
        await next(left)(exchange)

    fake.scripts["m1"] = script
    job = await house.api.create_soon("chat", says("hello"), user_id="ann-who-is-in-no-label")
    return await house.api.ended(job["job_id"], 40)


async def test_the_counters_are_what_the_tables_say_on_every_gateway_and_after_a_restart(
    database_url: str, tmp_path: Path
) -> None:
    async with FakeProvider() as fake, open_house(database_url) as house, start_gateway(database_url) as other:
        async with worker_for(house, fake, tmp_path) as worker:
            assert (await ended(house, fake, ANSWER))["status"] == "succeeded"
            assert (await ended(house, fake, SCRIPTS["cut"], ANSWER))["status"] == "succeeded"
            refused = await ended(house, fake, answering(400, {"error": {"code": "no"}}))
            assert refused["status"] == "failed"
            fake.scripts["m1"] = SCRIPTS["hang"]
            job = await house.api.create("chat", says("hello"))
            await fake.arrived(5)
            await worker.kill()
        fake.scripts["m1"] = ANSWER
        async with worker_for(house, fake, tmp_path):
            assert (await house.api.ended(job["job_id"], 40))["status"] == "succeeded"

        found = await once(house.gateway.admin_url, lease_expired_total=1, job_attempts_sum=6)
        cost = sum(value for key, value in found.items() if key[0] == "outlive_provider_cost_usd_total")
        assert Decimal(str(cost)) == await known_cost(house.database)
        unknown = found["outlive_provider_calls_with_unknown_cost", "m1", "fake"]
        assert unknown == await house.database.fetchval(
            "SELECT count(*) FROM outlive.provider_calls WHERE cost_usd IS NULL OR cost_is_lower_bound"
        )
        assert {key: value for key, value in of_tables(found).items() if "cost" not in key[0] and value} == EXPECTED
        assert of_tables(await once(other.admin_url, lease_expired_total=1, job_attempts_sum=6)) == of_tables(found)
        await other.stop()
        await other.start_again()
        assert of_tables(await samples(other.admin_url)) == of_tables(found)
        await expect_stats(house)


EXPECTED: Samples = {
    ("outlive_jobs_created_total", "chat"): 4,
    ("outlive_jobs_accepted_total", "chat", "m1", "fake"): 3,
    ("outlive_jobs_finished_total", "chat", "succeeded"): 3,
    ("outlive_jobs_finished_total", "chat", "failed"): 1,
    ("outlive_job_retries_total", "unknown_retry"): 1,
    ("outlive_job_retries_total", "lease_expired"): 1,
    ("outlive_lease_expired_total",): 1,
    ("outlive_provider_attempts_total", "m1", "succeeded", "fake"): 3,
    ("outlive_provider_attempts_total", "m1", "unknown", "fake"): 2,
    ("outlive_provider_attempts_total", "m1", "failed", "fake"): 1,
    ("outlive_provider_unknown_outcomes_total", "streaming", "fake"): 1,
    ("outlive_provider_unknown_outcomes_total", "lost", "fake"): 1,
    ("outlive_jobs", "succeeded"): 3,
    ("outlive_jobs", "failed"): 1,
    ("outlive_job_attempts_sum",): 6,
    ("outlive_job_attempts_bucket", "1.0"): 2,
    **{("outlive_job_attempts_bucket", le): 4 for le in ("2.0", "3.0", "5.0", "10.0", "20.0", "+Inf")},
}


async def known_cost(database: Database) -> Decimal:
    cost: Decimal = await database.fetchval("SELECT sum(cost_usd) FROM outlive.provider_calls")
    assert cost > 0
    return cost


async def expect_stats(house: House) -> None:
    """The other place where the seven counters are says the same."""
    answer = await house.api.client.get("/api/ai/stats")
    assert answer.status_code == 200
    stats = answer.json()
    assert {name: stats[name] for name in ("jobs_created", "jobs_accepted", "lease_expired_count")} == {
        "jobs_created": 4,
        "jobs_accepted": 3,
        "lease_expired_count": 1,
    }
    assert (stats["job_retry_rate"], stats["share_without_retry"]) == (2 / 6, 1 / 3)
    assert (stats["provider_attempts"], stats["provider_unknown_outcomes"]) == (6, 2)
    (model,) = stats["cost_per_accepted_job"]
    cost = await known_cost(house.database)
    assert (model["provider"], model["model"], Decimal(model["cost_usd"])) == ("fake", "m1", cost)
    assert (model["accepted_jobs"], Decimal(model["cost_per_accepted_job"])) == (3, round(cost / 3, 9))
    assert 0 <= stats["queue_wait_s"]["p50"] <= stats["queue_wait_s"]["p99"] < 60
    assert 0 < stats["run_time_s"]["p50"] <= stats["run_time_s"]["p99"] < 60


async def test_before_anything_happened_it_counts_nothing(database_url: str) -> None:
    async with start_gateway(database_url) as gateway:
        found = await once(gateway.admin_url, listener_up=1)
        assert {key: value for key, value in of_tables(found).items() if value} == {}
        assert found["outlive_oldest_queued_seconds",] == 0
        assert found["outlive_jobs", "queued"] == 0
        assert found["outlive_tables_counted",] == 1
        assert found["process_resident_memory_bytes",] > 0


async def test_a_job_that_waits_is_seen_and_no_label_names_anybody(database_url: str, tmp_path: Path) -> None:
    async with open_house(database_url) as house:
        async with start_worker(database_url, providers=write_providers(tmp_path)):
            job = await house.api.create_soon("summarize", {"text": "One. Two."}, user_id="ann")
            await house.api.ended(job["job_id"])
        later = await house.api.create("summarize", {"text": "One. Two."}, user_id="ann")
        events = house.api.client.stream("GET", f"/api/ai/jobs/{later['job_id']}/events")
        async with events as stream:
            assert stream.status_code == 200
            lines = stream.aiter_lines()
            await anext(lines)

            async def waits() -> Samples | None:
                found = await samples(house.gateway.admin_url)
                return found if found["outlive_jobs", "queued"] == 1 else None

            found = await until(waits, 20)
            assert found is not None
            assert found["outlive_sse_connections",] == 1
        text = (await text_of(house.gateway.admin_url)).text
        for somebody in ("acme", "ann", later["job_id"], job["job_id"]):
            assert somebody not in text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in OF_TABLES:
                    assert set(sample.labels) == OF_TABLES[sample.name]
                elif sample.name in OF_PROCESS:
                    assert not sample.labels


async def test_openmetrics_for_whoever_asks_for_it(database_url: str) -> None:
    async with start_gateway(database_url) as gateway:
        answer = await text_of(gateway.admin_url, accept="application/openmetrics-text; version=1.0.0")
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        names = {family.name for family in openmetrics.text_string_to_metric_families(answer.text)}  # type: ignore[no-untyped-call]
        assert {"outlive_jobs_created", "outlive_job_attempts", "outlive_listener_up"} <= names


async def test_many_scrapes_at_once_are_one_count(database_url: str) -> None:
    """Somebody holds a table, so that the first count waits and the others gather behind it."""
    answers: list[float] = []

    async def scrape(url: str) -> None:
        answers.append((await samples(url))["outlive_tables_counted",])

    async with open_house(database_url) as house:
        held = locked(database_url, "LOCK TABLE outlive.provider_calls")
        async with anyio.create_task_group() as tasks, held:
            for _ in range(8):
                tasks.start_soon(scrape, house.gateway.admin_url)
            assert await until(lambda: counts_that_wait(house.database)) == 1
            assert (await text_of(house.gateway.admin_url, "/livez")).status_code == 200
        # Where all of this took longer than a lock is waited for, none of them has been counted.
        assert answers in ([1] * 8, [0] * 8)


async def counts_that_wait(database: Database) -> int:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"
    return int(await database.fetchval(waiting, "%first_chunk_at%GROUP BY%"))


async def test_without_its_database_it_tells_what_the_process_knows(durable_postgres: DurablePostgres) -> None:
    url = await make_migrated(durable_postgres.url)
    await make_key(url)
    async with start_gateway(url) as gateway:
        await once(gateway.admin_url, tables_counted=1, listener_up=1)
        await durable_postgres.stop()
        found = await once(gateway.admin_url, tables_counted=0, listener_up=0)
        assert not of_tables(found)
        assert found["outlive_sse_connections",] == 0
        await durable_postgres.start_again()
        await once(gateway.admin_url, tables_counted=1, listener_up=1)


async def test_it_answers_while_the_gateway_drains_and_is_gone_with_it(database_url: str) -> None:
    key = await make_key(database_url)
    async with start_gateway(database_url, {"OUTLIVE_GRACE_SECONDS": "5"}) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            head = f"POST /api/ai/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: k\r\n"
            await stream.send(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode())
            assert (await text_of(gateway.url, "/livez")).status_code == 200
            gateway.send(signal.SIGTERM)

            async def drains() -> bool:
                return (await text_of(gateway.admin_url, "/readyz")).status_code == 503

            await until(drains)
            answer = await text_of(gateway.admin_url, "/readyz")
            assert problem(answer) == (503, "draining")
            assert (await text_of(gateway.admin_url, "/livez")).json() == {"alive": True}
            assert (await samples(gateway.admin_url))["outlive_tables_counted",] == 1
            await gateway.wait(6)
        with pytest.raises(httpx.ConnectError):
            await text_of(gateway.admin_url, "/livez")


async def test_a_clean_stop_is_a_clean_exit(database_url: str) -> None:
    async with start_gateway(database_url) as gateway, httpx.AsyncClient(trust_env=False) as idle:
        assert (await idle.get(f"{gateway.admin_url}/readyz")).json()["ready"] is True
        assert await gateway.stop(5) == 0


async def test_metrics_are_not_on_the_callers_port_nor_the_api_on_this_one(database_url: str) -> None:
    async with start_gateway(database_url) as gateway:
        assert problem(await text_of(gateway.url, "/metrics")) == (404, "not_found")
        assert problem(await text_of(gateway.admin_url, "/api/ai/kinds")) == (404, "not_found")


@pytest.mark.parametrize("module", ["gateway", "worker"])
async def test_an_admin_port_that_is_taken_is_one_sentence(database_url: str, module: str) -> None:
    async with start_gateway(database_url) as first:
        port = first.admin_url.rpartition(":")[2]
        environment = environment_for(database_url, {"OUTLIVE_PORT": "0", "OUTLIVE_ADMIN_PORT": port})
        async with run(module, environment) as second:
            assert await second.wait() == 1
            assert "choose another OUTLIVE_ADMIN_PORT" in second.log_text()
            assert "Traceback" not in second.log_text()


@asynccontextmanager
async def worker_with_a_port(database_url: str, more: Environment | None = None) -> AsyncIterator[str]:
    """Where its admin port is."""
    async with run("worker", environment_for(database_url, more)) as worker:
        await worker.logs("outlive worker admin listening on ")
        yield worker.log_text().partition("outlive worker admin listening on ")[2].split()[0]


async def test_a_worker_tells_what_it_has_in_hand(database_url: str, tmp_path: Path) -> None:
    providers = {"OUTLIVE_PROVIDERS": str(write_providers(tmp_path, words_per_second=1))}
    async with open_house(database_url) as house, worker_with_a_port(database_url, providers) as url:
        assert (await text_of(url, "/livez")).json() == {"alive": True}

        async def is_ready() -> bool:
            return (await text_of(url, "/readyz")).status_code == 200

        await until(is_ready)
        found = await samples(url)
        assert (found["outlive_worker_runs",], found["outlive_worker_claims_total",]) == (0, 0)
        await house.api.create_soon("summarize", {"text": "One is here. Two is there. Three is gone."})
        found = await once(url, worker_runs=1)
        assert found["outlive_worker_claims_total",] == 1
        assert found["process_resident_memory_bytes",] > 0
        async with httpx.AsyncClient(trust_env=False) as client:
            statuses = [
                (await client.request(method, f"{url}{path}")).status_code
                for method, path in (("GET", "/else"), ("POST", "/metrics"), ("HEAD", "/metrics"))
            ]
        assert statuses == [404, 405, 200]


async def test_a_worker_without_tables_is_alive_and_not_ready(empty_database_url: str) -> None:
    async with worker_with_a_port(empty_database_url) as url:
        assert (await text_of(url, "/readyz")).status_code == 503
        assert (await text_of(url, "/livez")).status_code == 200


async def test_no_scrape_of_a_worker_has_to_be_a_good_one(database_url: str) -> None:
    async with worker_with_a_port(database_url) as url:
        host, port = url.removeprefix("http://").split(":")
        for bad in (b"", b"\x00\xff\r\n\r\n", b"GET", b"GET /" + b"x" * 10_000, b"\r\n\r\n"):
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(bad or b" ")
        assert (await text_of(url, "/livez")).status_code == 200


def a_call(number: int, calls: int = 1) -> CallTotal:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return CallTotal("free", f"model {number}", "succeeded", "local", "streaming", calls, Decimal("0.1"), 0, at)


def test_models_that_callers_think_of_make_no_series_without_end() -> None:
    """Those that were used first keep their names, and nothing is lost of the others."""
    calls = [a_call(number) for number in range(MODELS_MOST + 10)]
    job = JobTotal("chat", "free", f"model {MODELS_MOST + 3}", "succeeded", 1, 7, calls[-1].first_at, None)
    families = {family.name: family for family in families_of_tables(Totals([job], calls[::-1], {}, 0))}
    attempts = {sample.labels["model"]: sample.value for sample in families["outlive_provider_attempts"].samples}
    assert len(attempts) == MODELS_MOST + 1
    assert (attempts["model 0"], attempts["other"]) == (1, 10)
    costs = {sample.labels["model"]: sample.value for sample in families["outlive_provider_cost_usd"].samples}
    assert costs["other"] == 1.0
    (accepted,) = families["outlive_jobs_accepted"].samples
    assert (accepted.labels["model"], accepted.value) == ("other", 7)
