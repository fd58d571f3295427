"""The scripted provider: which request gets what.

POST /v1/chat/completions, /v1/messages, /v1/responses      by the behaviour that the model's name says
GET /v1/responses/ID, POST /v1/responses/ID/cancel          what was begun in the background
GET /v1/generation?id=ID                                    what a lost completion came to, as OpenRouter tells it
GET /v1/models, GET /log                                    the behaviours; every request, and whether its client left
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import replace

from scripted_provider.behaviour import NAMES, Behaviour, UnknownBehaviour
from scripted_provider.exchange import Exchange, Request
from scripted_provider.generation import Generation
from scripted_provider.performance import perform, shape
from scripted_provider.server import Server
from scripted_provider.wires.chat import ChatWire
from scripted_provider.wires.messages import MessagesWire
from scripted_provider.wires.responses import ResponsesWire

_WIRES: dict[str, type[ChatWire] | type[MessagesWire] | type[ResponsesWire]] = {
    "/v1/chat/completions": ChatWire,
    "/v1/messages": MessagesWire,
    "/v1/responses": ResponsesWire,
}
# What OpenRouter answers for a moment after a generation.
_TOO_EARLY = {"error": {"code": 404, "message": "scripted"}}
DOLLARS_A_PIECE = 0.0001


class ScriptedProvider(Server):
    """An async context manager, as every Server."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._respond, port)
        self.generations: dict[str, Generation] = {}
        self._times: Counter[bytes] = Counter()
        self._costs: dict[str, float] = {}

    async def _respond(self, exchange: Exchange) -> None:
        request = exchange.request
        if request.method == "POST" and request.path in _WIRES:
            await self._generate(exchange)
        elif request.path.startswith("/v1/responses/"):
            await self._about_response(exchange)
        elif request.path == "/v1/generation":
            cost = self._costs.get(request.query.get("id", ""))
            found = {"data": {"id": request.query.get("id"), "total_cost": cost, "cancelled": False}}
            await exchange.answer(*((404, _TOO_EARLY) if cost is None else (200, found)))
        elif request.path == "/v1/models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "script"} for name in NAMES]
            await exchange.answer(200, {"object": "list", "data": models})
        elif request.path == "/log":
            await exchange.answer(200, [_told(each) for each in self.requests if each is not request])
        else:
            await exchange.answer(404, ChatWire(0, {"model": "", "messages": []}).error_body(404, "not_found"))

    async def _generate(self, exchange: Exchange) -> None:
        body, number = exchange.request.json, len(self.requests)
        wire = _WIRES[exchange.request.path](number, body)
        try:
            behaviour = self._in_turn(Behaviour.of(body["model"]), exchange.request)
        except UnknownBehaviour:
            await exchange.answer(404, wire.error_body(404, "model_not_found"))
            return
        if isinstance(wire, ResponsesWire) and body.get("background") and behaviour.name not in {"status", "silent"}:
            await self._in_background(exchange, wire, behaviour)
            return
        if isinstance(wire, ChatWire):
            self._costs[f"gen-{number}"] = behaviour.pieces * DOLLARS_A_PIECE
            exchange.headers["x-generation-id"] = f"gen-{number}"
        await perform(exchange, wire, behaviour)

    def _in_turn(self, behaviour: Behaviour, request: Request) -> Behaviour:
        """It happens the first `times` of the same request; the next one is answered, and then it begins anew."""
        if not behaviour.times:
            return behaviour
        same = hashlib.sha256(request.path.encode() + request.body).digest()
        self._times[same] += 1
        if self._times[same] <= behaviour.times:
            return behaviour
        del self._times[same]
        return replace(behaviour, name="well")

    async def _in_background(self, exchange: Exchange, wire: ResponsesWire, behaviour: Behaviour) -> None:
        """What happens, happens to the connection; the generation knows nothing of it."""
        generation = self.generations[wire.id] = Generation(wire, replace(behaviour, name="well"))
        if not exchange.request.json.get("stream"):
            await exchange.answer(200, wire.as_json())
            return
        await _listen(exchange, generation, behaviour)

    async def _about_response(self, exchange: Exchange) -> None:
        request = exchange.request
        name, _, verb = request.path.removeprefix("/v1/responses/").partition("/")
        generation = self.generations.get(name)
        if generation is None:
            await exchange.answer(404, ResponsesWire(0, {"input": ""}).error_body(404, "not_found"))
        elif verb == "cancel" and not generation.cancel():
            await exchange.answer(400, generation.wire.error_body(400, "already_completed"))
        elif request.query.get("stream") == "true":
            await _listen(exchange, generation, Behaviour("well"), int(request.query.get("starting_after", -1)))
        else:
            await exchange.answer(200, generation.wire.as_json())


async def _listen(exchange: Exchange, generation: Generation, behaviour: Behaviour, after: int = -1) -> None:
    """Until the generation is over, or the connection breaks or stalls after some pieces."""
    shape(exchange, behaviour)
    await exchange.head()
    heard = 0
    async for event in generation.heard(after):
        if exchange.request.gone.is_set():
            return
        await exchange.raw(event)
        heard += b".delta" in event
        if heard == behaviour.after and behaviour.name == "cut":
            await exchange.cut()
        if heard == behaviour.after and behaviour.name == "stall":
            await exchange.hang()
            return
        if heard == behaviour.after and behaviour.name == "no-end":
            break
    await exchange.end()


def _told(request: Request) -> dict[str, object]:
    """Without its credentials."""
    shown = {name: value for name, value in request.headers.items() if name not in {"authorization", "x-api-key"}}
    body = request.json if request.body else None
    return {
        "method": request.method,
        "target": request.target,
        "headers": shown,
        "body": body,
        "gone": request.gone.is_set(),
        "answered": request.answered.is_set(),
        "generated": request.generated,
    }


async def until_ended(port: int) -> None:
    """Serve, and say where, until cancelled."""
    async with ScriptedProvider(port) as provider:
        print(f"scripted provider listening on {provider.base_url}", flush=True)  # noqa: T201
        await asyncio.Event().wait()
