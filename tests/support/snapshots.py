"""All that the tables hold of some tenants at one moment, what must be so at any moment, and between two of them.

Written from docs/protocol.md and the table of the states, not from the statements: no mistake there is hidden here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from schema.database import Database
from tests.support.jobs import ENDS

Row = dict[str, Any]

# From each status the ones that one step, or two at once, can lead to; an end leads nowhere.
STEPS = {
    "scheduled": {"scheduled", "queued", "running", "failed", "cancelled"},
    "queued": {"queued", "running", "failed", "cancelled"},
    "running": {"running", "queued", "scheduled", "succeeded", "failed", "cancelled"},
}

_JOBS = "outlive.ai_jobs j ON j.id = x.job_id WHERE j.tenant_id = ANY($1)"
_OF_TENANTS = {
    "jobs": "SELECT j.*, j.status::text, t.name AS tenant FROM outlive.ai_jobs j"
    " JOIN outlive.tenants t ON t.id = j.tenant_id WHERE j.tenant_id = ANY($1) ORDER BY j.id",
    "leases": f"SELECT x.* FROM outlive.job_leases x JOIN {_JOBS}",
    "attempts": f"SELECT x.* FROM outlive.job_attempts x JOIN {_JOBS} ORDER BY x.job_id, x.attempt",
    "calls": f"SELECT x.* FROM outlive.provider_calls x JOIN {_JOBS} ORDER BY x.job_id, x.attempt, x.call",
    "events": "SELECT x.job_id, x.seq, x.kind::text, x.attempt, x.data FROM outlive.job_events x"
    f" JOIN {_JOBS} ORDER BY x.job_id, x.seq",
    "promises": "SELECT * FROM outlive.quota_reservations WHERE tenant_id = ANY($1)",
    "entries": "SELECT * FROM outlive.quota_ledger WHERE tenant_id = ANY($1) ORDER BY id",
    "accounts": "SELECT a.*, t.quota_usd FROM outlive.quota_accounts a JOIN outlive.tenants t ON t.id = a.tenant_id"
    " WHERE a.tenant_id = ANY($1)",
}
_OF_ALL = {
    "limits": "SELECT * FROM outlive.limits",
    "permits": "SELECT * FROM outlive.permits ORDER BY scope, slot",
}


def _by_job(rows: Iterable[Row]) -> dict[UUID, list[Row]]:
    found: dict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["job_id"]].append(row)
    return found


def scopes_of(job: Row) -> set[str]:
    """Those whose limit a job counts in, if they have one."""
    return {"global", f"tenant:{job['tenant']}", f"provider:{job['provider']}"}


@dataclass(frozen=True)
class Snapshot:
    """By job where it says so; limits and permits are those of the whole database."""

    jobs: dict[UUID, Row]
    leases: dict[UUID, Row]
    attempts: dict[UUID, list[Row]]
    calls: dict[UUID, list[Row]]
    events: dict[UUID, list[Row]]
    promises: dict[UUID, Row]
    entries: dict[UUID, list[Row]]
    accounts: list[Row]
    limits: dict[str, Row]
    permits: dict[str, list[Row]]

    def check(self) -> None:
        """Raises AssertionError where an invariant of the design is broken."""
        for job in self.jobs.values():
            self._check_log(job)
            self._check_attempts(job)
            self._check_money(job)
        self._check_permits()
        self._check_accounts()

    def _check_log(self, job: Row) -> None:
        events, lease = self.events[job["id"]], self.leases.get(job["id"])
        kinds = [event["kind"] for event in events]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert len(events) == (job["last_seq"] if lease is None else lease["last_seq"])
        assert (lease is not None) == (job["status"] == "running")
        ends = [kind for kind in kinds if kind in ENDS]
        assert ends == ([job["status"]] if job["status"] in ENDS else [])
        assert not ends or kinds[-1] == ends[0]
        begun = [orjson.loads(event["data"])["attempt"] for event in events if event["kind"] == "attempt"]
        assert begun == list(range(1, job["attempt"] + 1))
        # What an attempt said stands behind its beginning and before the next one's.
        assert [event["attempt"] for event in events] == sorted(event["attempt"] for event in events)

    def _check_attempts(self, job: Row) -> None:
        attempts, lease = self.attempts[job["id"]], self.leases.get(job["id"])
        assert [each["attempt"] for each in attempts] == list(range(1, job["attempt"] + 1))
        assert sum(each["counted"] for each in attempts) == job["attempts"] <= job["max_attempts"]
        live = [each for each in attempts if each["outcome"] == "running"]
        assert [each["run_token"] for each in live] == ([] if lease is None else [lease["run_token"]])
        assert lease is None or (live == attempts[-1:] and lease["attempt"] == job["attempt"])
        assert len({each["run_token"] for each in attempts}) == len(attempts)
        for call in self.calls[job["id"]]:
            assert 1 <= call["attempt"] <= len(attempts)
            assert call["outcome"] != "running" or (live and call["attempt"] == live[0]["attempt"])

    def _check_money(self, job: Row) -> None:
        promise, entries = self.promises.get(job["id"]), self.entries[job["id"]]
        assert (promise is None) == (job["reserved_usd"] == 0)
        reserved = sum((entry["reserved_usd"] for entry in entries), Decimal(0))
        charged = sum((entry["charged_usd"] for entry in entries), Decimal(0))
        if promise is None:
            assert entries == []
            return
        is_open = job["status"] not in ENDS
        assert (promise["state"] == "open") == is_open
        assert reserved == ((promise["amount_usd"] or 0) if is_open else 0)
        assert charged == (promise["charged_usd"] or 0) <= (promise["amount_usd"] or charged)
        settled = [entry for entry in entries if entry["entry"] in {"charge", "release"}]
        assert len(settled) <= (0 if is_open else 1)

    def _check_permits(self) -> None:
        """Invariant 9: as many slots as the limit says, each with one holder; more only where it was lowered."""
        assert self.permits.keys() <= self.limits.keys()
        running = {self.leases[key]["run_token"]: job for key, job in self.jobs.items() if key in self.leases}
        for scope, limit in self.limits.items():
            slots = self.permits.get(scope, [])
            assert sum(not slot["surplus"] for slot in slots) == limit["most"]
            held = [slot["holder"] for slot in slots if slot["holder"] is not None]
            counted = [token for token, job in running.items() if scope in scopes_of(job)]
            assert sorted(held) == sorted(counted), scope
        for lease in self.leases.values():
            mine = {
                (scope, slot["slot"])
                for scope, slots in self.permits.items()
                for slot in slots
                if slot["holder"] == lease["run_token"]
            }
            known = set(zip(lease["scopes"] or (), lease["slots"] or (), strict=True))
            assert mine == {each for each in known if each[0] in self.limits}

    def _check_accounts(self) -> None:
        for account in self.accounts:
            entries = [
                entry
                for of_job in self.entries.values()
                for entry in of_job
                if entry["tenant_id"] == account["tenant_id"] and account["period"] in ("total", entry["month"])
            ]
            for column in ("reserved_usd", "charged_usd"):
                assert account[column] == sum((entry[column] for entry in entries), Decimal(0))
            assert account["reserved_usd"] + account["charged_usd"] <= account["quota_usd"]

    def check_follows(self, before: Snapshot) -> None:
        """Raises AssertionError where what is for ever has changed since, or a job went where no step leads."""
        for job_id, old in before.jobs.items():
            was, now = before.events[job_id], self.events[job_id]
            assert now[: len(was)] == was
            for rows in ("attempts", "calls"):
                closed = _closed(getattr(before, rows)[job_id])
                known = _closed(getattr(self, rows)[job_id])
                assert all(row in known for row in closed)
            if old["status"] in ENDS:
                assert self.of(job_id) == before.of(job_id)
            else:
                assert self.jobs[job_id]["status"] in STEPS[old["status"]]
            lease, had = self.leases.get(job_id), before.leases.get(job_id)
            if lease and had and lease["run_token"] == had["run_token"]:
                assert lease["last_seq"] >= had["last_seq"]

    def of(self, job_id: UUID) -> tuple[object, ...]:
        """Everything of one job."""
        found = (self.jobs[job_id], self.attempts[job_id], self.calls[job_id], self.events[job_id])
        return (*found, self.promises.get(job_id), self.entries[job_id])

    def free_in(self, scope: str) -> int | None:
        """How many more may start in a scope; None without a limit."""
        if scope not in self.limits:
            return None
        slots = self.permits.get(scope, [])
        if any(slot["surplus"] and slot["holder"] is not None for slot in slots):
            return 0
        return sum(slot["holder"] is None and not slot["surplus"] for slot in slots)

    def is_blocked(self, job: Row) -> bool:
        """Whether a limit keeps the job from starting."""
        return any(self.free_in(scope) == 0 for scope in scopes_of(job))


def _closed(rows: Iterable[Row]) -> list[Row]:
    """Attempts or calls that are over; whether a checkpoint keeps a call may be said later."""
    return [{**row, "kept": None} for row in rows if row["outcome"] != "running"]


async def look(database: Database, tenants: Collection[UUID]) -> Snapshot:
    """Everything of these tenants. Statement by statement: for a moment at which nobody writes."""
    rows = {
        name: [dict(row) for row in await database.fetch(sql, list(tenants))] for name, sql in _OF_TENANTS.items()
    }
    rows |= {name: [dict(row) for row in await database.fetch(sql)] for name, sql in _OF_ALL.items()}
    permits: dict[str, list[Row]] = defaultdict(list)
    for permit in rows["permits"]:
        permits[permit["scope"]].append(permit)
    return Snapshot(
        jobs={row["id"]: row for row in rows["jobs"]},
        leases={row["job_id"]: row for row in rows["leases"]},
        attempts=_by_job(rows["attempts"]),
        calls=_by_job(rows["calls"]),
        events=_by_job(rows["events"]),
        promises={row["job_id"]: row for row in rows["promises"]},
        entries=_by_job(rows["entries"]),
        accounts=rows["accounts"],
        limits={row["scope"]: row for row in rows["limits"]},
        permits=permits,
    )
