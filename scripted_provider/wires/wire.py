"""What every wire format can say."""

from __future__ import annotations

import json
from typing import Literal, Protocol

End = Literal["stop", "length", "filter", "refusal"]


class Wire(Protocol):
    """One answer in one format; each method gives bytes of a body, or the JSON of an error."""

    def start(self) -> bytes: ...

    def piece(self, text: str) -> bytes: ...

    def ping(self) -> bytes: ...

    def empty(self) -> bytes: ...

    def error(self, code: str) -> bytes:
        """In the middle of a stream."""
        ...

    def end(self, how: End) -> bytes:
        """With usage and the mark of a true end."""
        ...

    def error_body(self, status: int, code: str) -> dict[str, object]: ...


def event(data: object, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
