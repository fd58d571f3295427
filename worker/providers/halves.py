"""Emoji that come in two halves, over two deltas: alone each half would be replaced, so the first one waits."""

from __future__ import annotations

from worker.providers.provider import Piece


class Halves:
    """What waits of each channel of one stream."""

    def __init__(self) -> None:
        self._waiting: dict[str | None, str] = {}

    def piece(self, text: object, channel: str | None) -> list[Piece]:
        """The piece that a delta's text makes, none where it is no text or all of it waits."""
        if not isinstance(text, str) or not text:
            return []
        if self._waiting:
            text = _joined(self._waiting.pop(channel, ""), text)
        if "\ud800" <= text[-1] <= "\udbff":
            self._waiting[channel] = text[-1]
            text = text[:-1]
        return [Piece(text, channel)] if text else []

    def rest(self) -> list[Piece]:
        """What waited in vain."""
        waiting, self._waiting = self._waiting, {}
        return [Piece(half, channel) for channel, half in waiting.items()]


def _joined(half: str, text: str) -> str:
    if half and "\udc00" <= text[0] <= "\udfff":
        pair = (half + text[0]).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        return pair + text[1:]
    return half + text
