"""The reference reader: what a client has to show after the events it got, over any number of connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.sse_frames import Event, broken


@dataclass(slots=True)
class Reader:
    """Takes events in order. `cursor` is what to resume from; `ids` are all that came, to be 1..n."""

    ids: list[int] = field(default_factory=list)
    attempt: int = 0
    outcome: Event | None = None
    reconnects: list[Event] = field(default_factory=list)
    # Each with the id it came under, so that an attempt can make it void.
    _parts: list[tuple[int, str | None, str]] = field(default_factory=list)
    _values: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        return self.ids[-1] if self.ids else 0

    @property
    def text(self) -> str:
        return self.channel(None)

    @property
    def finished(self) -> bool:
        return self.outcome is not None

    @property
    def result(self) -> Any:
        """The terminal event's result; None before the end and where the job did not succeed."""
        return self.outcome.data.get("result") if self.outcome else None

    @property
    def values(self) -> list[dict[str, Any]]:
        """The data of `data` and `progress` events that are not void."""
        return [value for _, value in self._values]

    def channel(self, name: str | None) -> str:
        return "".join(text for _, channel, text in self._parts if channel == name)

    def take(self, event: Event) -> None:
        """Raises ProtocolBroken for what one connection cannot see: an id again, an event after the end."""
        if event.cursor is None:
            if event.name == "reconnect":
                self.reconnects.append(event)
            return
        if event.cursor <= self.cursor or self.finished:
            raise broken(f"an event after id {self.cursor} and outcome {self.outcome}", event)
        self.ids.append(event.cursor)
        self._apply(event, event.cursor)

    def _apply(self, event: Event, cursor: int) -> None:
        if event.name == "chunk":
            self._parts.append((cursor, event.data.get("channel"), event.data["text"]))
        elif event.name in ("data", "progress"):
            self._values.append((cursor, event.data))
        elif event.name == "attempt":
            self._start_attempt(event, cursor)
        elif event.name == "snapshot":
            self._parts = [part for part in self._parts if part[1] is not None]
            self._parts.append((cursor, None, event.data["text"]))
        elif event.is_terminal:
            self.outcome = event

    def _start_attempt(self, event: Event, cursor: int) -> None:
        number, kept_to = event.data["attempt"], event.data["resumes_after"]
        if number <= self.attempt or kept_to >= cursor:
            raise broken(f"an attempt that does not follow attempt {self.attempt}", event)
        if (event.data["reason"] == "started") != (self.attempt == 0):
            raise broken("reason 'started' belongs to the first attempt alone", event)
        self.attempt = number
        self._parts = [part for part in self._parts if part[0] <= kept_to]
        self._values = [value for value in self._values if value[0] <= kept_to]
