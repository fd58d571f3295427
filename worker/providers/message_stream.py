"""Reads the events of a stream of Anthropic's; pure, no network.

Usage comes in two parts: what was read with the first event, what was written with the last ones, each time in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.providers.event_reader import EventReader
from worker.providers.halves import Halves
from worker.providers.outcomes import error_of
from worker.providers.provider import Piece


class MessageStream(EventReader):
    """State of one stream; `feed` it the data of each event in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self.message_id: str | None = None
        self.stop_reason: str | None = None
        self.usage: dict[str, Any] = {}
        self._channels: dict[object, str | None] = {}
        self._halves = Halves()

    @property
    def complete(self) -> bool:
        """Whether the provider said how it ended."""
        return self.done or self.stop_reason is not None

    @property
    def said_all(self) -> bool:
        """Whether `message_stop` was said."""
        return self.done

    @property
    def is_finishing(self) -> bool:
        """Whether only `message_stop` may follow."""
        return self.stop_reason is not None

    def rest(self) -> list[Piece]:
        """What still waited for its second half when the stream ended."""
        return self._halves.rest()

    def _frame(self, frame: Mapping[str, Any]) -> list[Piece]:
        match frame.get("type"):
            case "message_start":
                self._begin(frame.get("message"))
            case "content_block_start":
                self._open(frame.get("index"), frame.get("content_block"))
            case "content_block_delta":
                return self._delta(frame.get("index"), frame.get("delta"))
            case "message_delta":
                self._note(frame)
            case "message_stop":
                self.done = True
            case "error":
                self.error = _error(frame)
        return []

    def _begin(self, message: object) -> None:
        if isinstance(message, dict):
            given = message.get("id")
            self.message_id = given if isinstance(given, str) else None
            self._add(message.get("usage"))

    def _open(self, index: object, block: object) -> None:
        if isinstance(block, dict) and block.get("type") in {"tool_use", "server_tool_use"}:
            self._channels[index] = f"tool:{str(block.get('id', index))[:64]}"

    def _delta(self, index: object, delta: object) -> list[Piece]:
        if not isinstance(delta, dict):
            return []
        match delta.get("type"):
            case "text_delta":
                return self._halves.piece(delta.get("text"), None)
            case "thinking_delta":
                return self._halves.piece(delta.get("thinking"), "reasoning")
            case "input_json_delta":
                return self._halves.piece(delta.get("partial_json"), self._channels.get(index) or f"tool:{index}")
        return []

    def _note(self, frame: Mapping[str, Any]) -> None:
        delta = frame.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        self.stop_reason = reason if isinstance(reason, str) and reason else self.stop_reason
        self._add(frame.get("usage"))

    def _add(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage |= {name: value for name, value in usage.items() if value is not None}


def _error(frame: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its `error_code` is the stable one; the type is for people who read English."""
    error = error_of(frame)
    return {**error, "code": error["error_code"]} if isinstance(error.get("error_code"), str) else error
