"""Reads the frames of a chat completions stream; pure, no network.

Knows the dialects of the compatibles: `reasoning` and `reasoning_content`, content as a list of
parts, usage in any chunk, errors in mid-stream, `finish_reason` null with `[DONE]` (Ollama), no
`[DONE]` at all. A stream is complete once it said `[DONE]` or a finish reason; only that is success.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.providers.event_reader import EventReader
from worker.providers.halves import Halves
from worker.providers.outcomes import error_of
from worker.providers.provider import Piece


class ChatStream(EventReader):
    """State of one stream; `feed` it the data of each event in order."""

    def __init__(self, *, needs_reason: bool = False) -> None:
        super().__init__()
        self._needs_reason = needs_reason
        self.done = False
        self.finish_reason: str | None = None
        self.refused = False
        self.usage: Mapping[str, Any] | None = None
        self._tools: dict[int, str] = {}
        self._halves = Halves()

    @property
    def complete(self) -> bool:
        """Whether the provider's own terminal marker was seen."""
        return self.finish_reason is not None or (self.done and not self._needs_reason)

    @property
    def said_all(self) -> bool:
        """Whether `[DONE]` was said; behind a finish reason usage may still come."""
        return self.done

    @property
    def is_finishing(self) -> bool:
        """Whether only usage and `[DONE]` may follow."""
        return self.finish_reason is not None

    def rest(self) -> list[Piece]:
        """What still waited for its second half when the stream ended."""
        return self._halves.rest()

    def _last_word(self) -> None:
        self.done = True

    def _frame(self, frame: Mapping[str, Any]) -> list[Piece]:
        if frame.get("error") or frame.get("object") == "error":
            self.error = error_of(frame)  # the second is vLLM's
        usage = frame.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        choices = frame.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []
        return self._choice(choices[0])

    def _choice(self, choice: Mapping[str, Any]) -> list[Piece]:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return []
        pieces = []
        content = delta.get("content")
        if content:
            pieces += self._halves.piece(_text(content), None)
        if len(delta) > 1 or not content:
            pieces += self._beside(delta)
        return pieces

    def _beside(self, delta: Mapping[str, Any]) -> list[Piece]:
        """Whatever a delta has besides its content: reasoning, tool calls, a refusal."""
        self.refused = self.refused or bool(delta.get("refusal"))
        pieces = self._halves.piece(_text(delta.get("reasoning_content") or delta.get("reasoning")), "reasoning")
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                pieces += self._tool(call)
        return pieces

    def _tool(self, call: Mapping[str, Any]) -> list[Piece]:
        index = call.get("index")
        index = index if isinstance(index, int) else 0
        if isinstance(call.get("id"), str) and call["id"]:
            self._tools[index] = call["id"][:64]
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        return self._halves.piece(_text(arguments), f"tool:{self._tools.get(index, index)}")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return ""
