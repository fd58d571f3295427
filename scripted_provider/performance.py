"""A behaviour, carried out on one exchange in one wire format."""

from __future__ import annotations

import time
from email.utils import formatdate

from scripted_provider.behaviour import Behaviour
from scripted_provider.exchange import Exchange
from scripted_provider.pace import Pace
from scripted_provider.script import pieces_of, stamp
from scripted_provider.wires.wire import End, Wire

PING_SECONDS = 0.05
HUGE_BYTES = 3_000_000

_ENDS: dict[str, End] = {"refusal": "refusal", "filter": "filter", "length": "length"}
_ERRORS = {400: "invalid_request", 401: "invalid_api_key", 402: "billing_error", 404: "model_not_found"}
_ERRORS |= {429: "rate_limit_exceeded", 529: "overloaded_error"}


async def perform(exchange: Exchange, wire: Wire, behaviour: Behaviour) -> None:
    """From the first byte to the last, or to where it breaks. Raises Cut."""
    shape(exchange, behaviour)
    match behaviour.name:
        case "silent":
            await exchange.hang()
        case "status":
            await _refuse(exchange, wire, behaviour)
        case "error-200":
            await exchange.answer(200, wire.error_body(500, behaviour.error or "server_error"))
        case _:
            await _stream(exchange, wire, behaviour)


def shape(exchange: Exchange, behaviour: Behaviour) -> None:
    """How the bytes of its body go out."""
    exchange.chunk_bytes = behaviour.chunk or None
    exchange.cut_after_bytes = behaviour.bytes or None
    exchange.crlf = bool(behaviour.crlf)


async def _refuse(exchange: Exchange, wire: Wire, behaviour: Behaviour) -> None:
    headers = {"retry_after": behaviour.retry, "retry_after_ms": behaviour.retry_ms}
    if behaviour.retry_date:
        headers["retry_after"] = formatdate(time.time() + float(behaviour.retry_date), usegmt=True)
    code = behaviour.error or _ERRORS.get(behaviour.code, "server_error")
    given = {name: value for name, value in headers.items() if value}
    await exchange.answer(behaviour.code, wire.error_body(behaviour.code, code), **given)


async def _stream(exchange: Exchange, wire: Wire, behaviour: Behaviour) -> None:
    await exchange.head()
    await exchange.raw(wire.start())
    pace = Pace(behaviour.rate)
    for number, text in enumerate(pieces_of(behaviour), 1):
        await pace.next()
        if exchange.request.gone.is_set() and behaviour.name != "goes-on":
            return
        exchange.request.generated += 1
        if not await _is_heard(exchange, wire.piece(stamp() if behaviour.stamped else text)):
            continue
        if behaviour.name == "empty":
            await exchange.raw(wire.empty())
        if number == behaviour.after and await _happens(exchange, wire, behaviour):
            return
    if not exchange.request.gone.is_set():
        await exchange.raw(wire.end(_ENDS.get(behaviour.name, "stop")))
        await exchange.end()


async def _is_heard(exchange: Exchange, body: bytes) -> bool:
    """Say it to whoever is still there. Raises Cut."""
    if not exchange.request.gone.is_set():
        try:
            await exchange.raw(body)
        except ConnectionError:
            # The socket knew it before we did.
            exchange.request.gone.set()
    return not exchange.request.gone.is_set()


async def _happens(exchange: Exchange, wire: Wire, behaviour: Behaviour) -> bool:
    """What happens in the middle; True where that is the end. Raises Cut."""
    match behaviour.name:
        case "stall":
            await exchange.hang()
        case "pings":
            pace = Pace(1 / PING_SECONDS)
            while not exchange.request.gone.is_set():
                await exchange.raw(wire.ping())
                await pace.next()
        case "cut":
            await exchange.wire(b"40\r\ndata: {")
            await exchange.cut()
        case "no-end":
            await exchange.end()
        case "stream-error":
            await exchange.raw(wire.error(behaviour.error or "server_error"))
            await exchange.end()
        case "huge":
            await exchange.raw(wire.piece("x" * HUGE_BYTES))
            return False
        case _:
            return False
    return True
