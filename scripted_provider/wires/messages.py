"""Anthropic's messages."""

from __future__ import annotations

from typing import Any

from scripted_provider.wires.wire import End, event

_REASONS: dict[End, str] = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "refusal": "refusal"}
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error"}
_TYPES |= {404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error"}
_TYPES |= {529: "overloaded_error"}


class MessagesWire:
    """One streamed message."""

    def __init__(self, number: int, body: dict[str, Any]) -> None:
        self._id = f"msg_{number}"
        self._model = body["model"]
        self._said = 0
        self._asked = sum(len(str(message.get("content")).split()) for message in body["messages"])

    def start(self) -> bytes:
        usage = {"input_tokens": self._asked, "output_tokens": 1}
        message = {"id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return self._event("message_start", message=message) + self._event("content_block_start", **block)

    def piece(self, text: str) -> bytes:
        self._said += 1
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def ping(self) -> bytes:
        return self._event("ping")

    def empty(self) -> bytes:
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": ""})

    def error(self, code: str) -> bytes:
        return event(self.error_body(500, code), "error")

    def end(self, how: End) -> bytes:
        delta = {"stop_reason": _REASONS[how], "stop_sequence": None}
        last = self._event("message_delta", delta=delta, usage={"output_tokens": self._said})
        return self._event("content_block_stop", index=0) + last + self._event("message_stop")

    def error_body(self, status: int, code: str) -> dict[str, object]:
        kind = code if code.endswith("_error") else _TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": "scripted"}, "request_id": "req-1"}

    def _event(self, kind: str, **data: object) -> bytes:
        return event({"type": kind, **data}, kind)
