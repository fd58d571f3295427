"""Reads the events of a Responses stream; pure, no network.

Each event has a type and a sequence number, and the generation goes on when nobody listens: the number of the last
event that is wholly in the log is where to go on. Types that nobody here knows are skipped, `keepalive` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.providers.event_reader import EventReader
from worker.providers.outcomes import error_of
from worker.providers.provider import Piece

_ENDS = frozenset({"completed", "failed", "incomplete", "cancelled"})
_ID_CHARS = 128
_CHANNELS = {
    "response.output_text.delta": None,
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool",
}


class ResponseStream(EventReader):
    """State of one stream; `feed` it the data of each event in order."""

    def __init__(self) -> None:
        super().__init__()
        self.resumable_id: str | None = None
        self.status: str | None = None
        self.incomplete_reason: str | None = None
        self.refused = False
        self.usage: Mapping[str, Any] | None = None
        self._waiting: dict[str | None, str] = {}

    @property
    def complete(self) -> bool:
        """Whether the provider said how it ended."""
        return self.status in _ENDS

    @property
    def said_all(self) -> bool:
        """The same: its last event has the end and the usage."""
        return self.complete

    @property
    def is_finishing(self) -> bool:
        """Its end says all by itself."""
        return False

    def rest(self) -> list[Piece]:
        """Nothing: half an emoji is half of what is not said yet."""
        return []

    def response(self, response: Mapping[str, Any]) -> None:
        """What a response object says of itself, in an event or asked for alone."""
        given = response.get("id")
        is_id = isinstance(given, str) and 0 < len(given) <= _ID_CHARS and given.isascii() and given.isprintable()
        # Servers that know no background take the wish for it and ignore it (llama.cpp).
        if is_id and response.get("background") is True:
            self.resumable_id = given
        if response.get("status") in _ENDS:
            self.status = response["status"]
        usage, details = response.get("usage"), response.get("incomplete_details")
        self.usage = usage if isinstance(usage, dict) else self.usage
        if isinstance(details, dict) and isinstance(details.get("reason"), str):
            self.incomplete_reason = details["reason"]
        if response.get("error"):
            self.error = error_of(response)

    def _frame(self, frame: Mapping[str, Any]) -> list[Piece]:
        kind, number = frame.get("type"), frame.get("sequence_number")
        cursor = str(number) if isinstance(number, int) and not isinstance(number, bool) else None
        if kind in _CHANNELS:
            return self._delta(frame, _CHANNELS[kind], cursor)
        if kind == "response.refusal.delta":
            self.refused = True
        elif kind == "error":
            self.error = error_of({"error": frame.get("error") or frame})
        elif isinstance(frame.get("response"), dict):
            return self._about(frame["response"], cursor)
        return []

    def _about(self, response: Mapping[str, Any], cursor: str | None) -> list[Piece]:
        is_new = self.resumable_id is None
        self.response(response)
        is_known = self.resumable_id is not None and cursor is not None
        return [Piece("", cursor=cursor)] if is_new and is_known else []

    def _delta(self, frame: Mapping[str, Any], channel: str | None, cursor: str | None) -> list[Piece]:
        text = frame.get("delta")
        if not isinstance(text, str) or not text:
            return []
        if channel == "tool":
            channel = f"tool:{str(frame.get('item_id'))[:64]}"
        half = self._waiting.pop(channel, "")
        # One that waits in another channel waits in vain: behind this place nobody would hear it again.
        pieces = [Piece(rest, other) for other, rest in self._waiting.items()]
        self._waiting = {}
        text = _paired(half + text) if half else text
        if "\ud800" <= text[-1] <= "\udbff":
            # Half of an emoji: all of its delta waits, since whoever goes on behind it never hears that half again.
            self._waiting[channel] = text
            return pieces
        return [*pieces, Piece(text, channel, cursor)]


def _paired(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
