"""What all readers of wire formats have in common: one event after the other, and nothing behind the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from worker.providers.provider import Piece
from worker.providers.wire_json import decode


class EventReader(ABC):
    """State of one stream; `feed` it the data of each event in order."""

    def __init__(self) -> None:
        self.malformed = False
        self.error: Mapping[str, Any] | None = None

    @property
    @abstractmethod
    def said_all(self) -> bool:
        """Whether its last event has come."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to read: its end, an error, or a frame that is none."""
        return self.said_all or self.malformed or self.error is not None

    def feed(self, frames: Iterable[bytes]) -> list[Piece]:
        """The pieces in the data of some events; what follows the end is not looked at."""
        pieces: list[Piece] = []
        for data in frames:
            if self.ended:
                break
            pieces += self._event(data)
        return pieces

    def _event(self, data: bytes) -> list[Piece]:
        if data.startswith(b"[DONE]"):
            self._last_word()
            return []
        frame = decode(data)
        if frame is None:
            self.malformed = True
            return []
        return self._frame(frame)

    def _last_word(self) -> None:  # noqa: B027 - most say their end in an event, and this after it or not at all
        """`[DONE]` was said, which is no JSON."""

    @abstractmethod
    def _frame(self, frame: Mapping[str, Any]) -> list[Piece]:
        """The pieces of one event."""
