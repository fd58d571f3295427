"""OpenAI's Responses: every event has a number, and the last one has the whole answer."""

from __future__ import annotations

from typing import Any

from scripted_provider.wires.wire import End, event

_ITEM = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


class ResponsesWire:
    """One response, as events and as the object that can be asked for."""

    def __init__(self, number: int, body: dict[str, Any]) -> None:
        self.id = f"resp_{number}"
        self.status = "in_progress"
        self._body = body
        self._number = -1
        self._texts: list[str] = []
        self._reason: str | None = None
        self._error: dict[str, object] | None = None
        given = body["input"]
        asked = given if isinstance(given, str) else " ".join(str(item.get("content")) for item in given)
        self._asked = len(asked.split())

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def start(self) -> bytes:
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        return b"".join(
            (
                self._event("created", response=self.as_json()),
                self._event("in_progress", response=self.as_json()),
                self._event("output_item.added", output_index=0, item=item),
                self._event("content_part.added", **_ITEM, part=self._part("")),
            )
        )

    def piece(self, text: str) -> bytes:
        self._texts.append(text)
        return self._event("output_text.delta", **_ITEM, delta=text, logprobs=[])

    def ping(self) -> bytes:
        self._number += 1
        return event({"type": "keepalive", "sequence_number": self._number}, "keepalive")

    def empty(self) -> bytes:
        return self.ping()

    def error(self, code: str) -> bytes:
        self.status, self._error = "failed", {"code": code, "message": "scripted"}
        return self._event("failed", response=self.as_json())

    def end(self, how: End) -> bytes:
        body = b""
        if how == "refusal":
            body += self._event("refusal.delta", **_ITEM, delta="I would rather not.")
        if how in {"length", "filter"}:
            self._reason = "max_output_tokens" if how == "length" else "content_filter"
        self.status = "incomplete" if self._reason else "completed"
        body += self._event("output_text.done", **_ITEM, text=self.text, logprobs=[])
        body += self._event("content_part.done", **_ITEM, part=self._part(self.text))
        body += self._event("output_item.done", output_index=0, item=self._message())
        return body + self._event(self.status, response=self.as_json())

    def error_body(self, status: int, code: str) -> dict[str, object]:
        kind = "invalid_request_error" if status < 429 else code
        return {"error": {"message": "scripted", "type": kind, "code": code, "param": None}}

    def as_json(self) -> dict[str, object]:
        """The response as it is now."""
        said = len(self._texts)
        is_over = self.status != "in_progress"
        usage = {
            "input_tokens": self._asked,
            "output_tokens": said,
            "total_tokens": self._asked + said,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            "id": self.id,
            "object": "response",
            "created_at": 1_700_000_000,
            "model": self._body["model"],
            "status": self.status,
            "background": bool(self._body.get("background")),
            "error": self._error,
            "incomplete_details": self._reason and {"reason": self._reason},
            "instructions": None,
            "metadata": {},
            "output": [self._message()] if is_over else [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": usage if is_over else None,
        }

    def _message(self) -> dict[str, object]:
        status = "completed" if self.status == "completed" else "incomplete"
        parts = [self._part(self.text)]
        return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": parts}

    def _part(self, text: str) -> dict[str, object]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _event(self, kind: str, **data: object) -> bytes:
        self._number += 1
        name = f"response.{kind}"
        return event({"type": name, "sequence_number": self._number, **data}, name)
