"""`GET /api/ai/jobs/{job_id}/events`: the log as a stream, or in pages for who cannot hold one."""

import random
import time
from functools import partial
from uuid import UUID

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.auth import Caller, authenticate
from gateway.cursors import CursorInvalid, cursor_of
from gateway.event_stream import HEADERS, EventStream, one_piece
from gateway.frames import data_object, reconnect, retry_ms
from gateway.gateway import Gateway, gateway_of
from gateway.log_watch import wait_for_events
from gateway.problems import Problem
from gateway.queries import read_query, whole_number
from gateway.streaming import Reader, StreamEnd
from gateway.tokens import Scope
from schema.errors import DatabaseBusy, DatabaseUnavailable
from schema.events import LogHead, log_head, read_after
from schema.job_ids import parse_job_id

# A thousand streams that began together must not all come back together.
MAX_AGE_JITTER = 0.2
JSON_EVENTS_DEFAULT = 200
JSON_EVENTS_MOST = 1000
JSON_WAIT_MOST_SECONDS = 50


def stream_routes() -> list[Route]:
    """The routes of this file."""
    return [Route("/api/ai/jobs/{job_id}/events", job_events, methods=["GET"])]


async def job_events(request: Request) -> Response:
    """Replay from the cursor, then follow; 204 for a reader that has it all."""
    gateway = gateway_of(request)
    job_id = parse_job_id(request.path_params["job_id"])
    if job_id is None:
        raise Problem("not_found", "A job id is a UUID in lower case; this is none.")
    if _wants_json(request):
        caller = await authenticate(request, query_token_for=job_id)
        return await _pages(request, gateway, caller, job_id, _cursor(request))
    try:
        caller = await authenticate(request, query_token_for=job_id)
        return await _stream(request, gateway, caller, job_id, _cursor(request))
    except (DatabaseUnavailable, DatabaseBusy):
        return _come_back(gateway, "database")


def _wants_json(request: Request) -> bool:
    """By the media ranges of Accept; the stream where both would do."""
    accept = request.headers.get("accept", "*/*").lower()
    ranges = {part.partition(";")[0].strip() for part in accept.split(",")}
    if ranges & {"text/event-stream", "text/*", "*/*", ""}:
        return False
    if ranges & {"application/json", "application/*"}:
        return True
    raise Problem("not_acceptable", "Ask for text/event-stream or application/json.")


def _cursor(request: Request) -> int:
    try:
        return cursor_of(request)
    except CursorInvalid:
        raise Problem("bad_cursor", "A cursor is the id of an event in decimal; drop it and start from 0.") from None


async def _head(gateway: Gateway, caller: Caller, job_id: UUID, cursor: int) -> LogHead:
    head = await log_head(gateway.database, caller.reach, job_id)
    if head is None:
        raise Problem("not_found", "There is no job of this id, or none that you may see.")
    caller.must(Scope.READ)
    if cursor > head.last_seq:
        raise Problem("bad_cursor", f"The log ends at {head.last_seq}; drop what you have and start from 0.")
    return head


async def _stream(request: Request, gateway: Gateway, caller: Caller, job_id: UUID, cursor: int) -> Response:
    # An authorised stream is never answered with an error status: that stops a native EventSource for good.
    if gateway.draining.is_set():
        return _come_back(gateway, "draining")
    if len(gateway.wheel) >= gateway.settings.max_streams:
        return _come_back(gateway, "overloaded")
    head = await _head(gateway, caller, job_id, cursor)
    if head.finished and cursor == head.last_seq:
        return Response(status_code=204, headers={"cache-control": HEADERS["cache-control"]})
    if request.method == "HEAD":
        return EventStream(gateway.wheel, one_piece(b""))
    reader = Reader(
        database=gateway.database,
        tailer=gateway.tailer,
        job_id=job_id,
        end=_end(gateway, caller),
        heartbeat_s=gateway.settings.heartbeat_s,
        retry_ms=retry_ms(len(gateway.wheel)),
    )
    return EventStream(gateway.wheel, partial(reader.follow, cursor))


def _come_back(gateway: Gateway, reason: str) -> Response:
    return EventStream(gateway.wheel, one_piece(reconnect(reason, retry_ms(len(gateway.wheel)))))


def _end(gateway: Gateway, caller: Caller) -> StreamEnd:
    now = time.monotonic()
    age_s = gateway.settings.stream_max_age_s * random.uniform(1 - MAX_AGE_JITTER, 1)  # noqa: S311 - spreads load
    token_s = None if caller.expires_at is None else caller.expires_at.timestamp() - time.time()
    key_id = None if caller.key is None else caller.key.id
    if key_id is not None:
        gateway.keys.note(key_id)
    return StreamEnd(
        draining=gateway.draining,
        max_age_at=now + age_s,
        token_expires_at=None if token_s is None else now + token_s,
        is_revoked=partial(gateway.keys.is_revoked, key_id),
    )


async def _pages(request: Request, gateway: Gateway, caller: Caller, job_id: UUID, cursor: int) -> Response:
    query = read_query(request, {"token", "last_event_id", "limit", "wait"})
    limit = whole_number(query, "limit", JSON_EVENTS_DEFAULT, 1, JSON_EVENTS_MOST)
    wait_s = whole_number(query, "wait", 0, 0, JSON_WAIT_MOST_SECONDS)
    head = await _head(gateway, caller, job_id, cursor)
    events = await read_after(gateway.database, job_id, cursor, limit)
    if not events and not head.finished and wait_s:
        events = await wait_for_events(gateway, job_id, cursor, limit, wait_s)
    following = events[-1].seq if events else cursor
    finished = events[-1].kind.ends if events else head.finished
    body = {"events": [data_object(event) for event in events], "next": following, "finished": finished}
    return Response(orjson.dumps(body), media_type="application/json")
