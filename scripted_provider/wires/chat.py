"""OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from scripted_provider.wires.wire import End, event

_REASONS: dict[End, str] = {"stop": "stop", "length": "length", "filter": "content_filter", "refusal": "stop"}


class ChatWire:
    """One streamed completion."""

    def __init__(self, number: int, body: dict[str, Any]) -> None:
        self._id = f"chatcmpl-{number}"
        self._body = body
        self._said = 0
        self._asked = sum(len(str(message.get("content")).split()) for message in body["messages"])

    def start(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        self._said += 1
        return self._chunk({"content": text})

    def ping(self) -> bytes:
        return b": OPENROUTER PROCESSING\n\n"

    def empty(self) -> bytes:
        return event(self._envelope([]))

    def error(self, code: str) -> bytes:
        return event({"error": {"message": "scripted", "type": code, "code": code, "param": None}})

    def end(self, how: End) -> bytes:
        last: dict[str, object] = {"refusal": "I would rather not."} if how == "refusal" else {}
        body = self._chunk(last, _REASONS[how])
        if (self._body.get("stream_options") or {}).get("include_usage"):
            total = self._asked + self._said
            usage = {"prompt_tokens": self._asked, "completion_tokens": self._said, "total_tokens": total}
            body += event(self._envelope([]) | {"usage": usage})
        return body + b"data: [DONE]\n\n"

    def error_body(self, status: int, code: str) -> dict[str, object]:
        kind = "invalid_request_error" if status < 429 else code
        return {"error": {"message": "scripted", "type": kind, "code": code, "param": None}}

    def _chunk(self, delta: dict[str, object], reason: str | None = None) -> bytes:
        return event(self._envelope([{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}]))

    def _envelope(self, choices: list[dict[str, object]]) -> dict[str, object]:
        head = {"id": self._id, "object": "chat.completion.chunk", "created": 1_700_000_000}
        return {**head, "model": self._body["model"], "choices": choices, "usage": None}
