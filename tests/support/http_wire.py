"""Just enough of HTTP/1.1 to see every byte of a stream: an answer's head, and a chunked body by pieces."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.sse_frames import broken


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer, names in lower case."""

    status: int
    headers: dict[str, str]


def parse_head(raw: bytes) -> Head:
    """`raw` is all before the blank line. Raises ProtocolBroken for a malformed or doubled line."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if version != "HTTP/1.1" or not rest[:3].isdigit():
        raise broken("not the status line of an HTTP/1.1 answer", first)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name.lower() in headers:
            raise broken("a header without a colon, or doubled", line)
        headers[name.lower()] = value.strip()
    return Head(int(rest[:3]), headers)


class Chunks:
    """A chunked body: feed it what the socket gives, get the body's bytes; `ended` after the last chunk."""

    def __init__(self) -> None:
        self.ended = False
        self._raw = b""
        self._left = 0

    def feed(self, raw: bytes) -> bytes:
        self._raw += raw
        body: list[bytes] = []
        while not self.ended and (piece := self._next()) is not None:
            body.append(piece)
        if self.ended and self._raw:
            raise broken("bytes after the last chunk", self._raw)
        return b"".join(body)

    def _next(self) -> bytes | None:
        """A piece of the body, or None until more has come. `_left` counts the chunk's CRLF too."""
        if self._left:
            return self._piece()
        size_line, end, rest = self._raw.partition(b"\r\n")
        if not end:
            return None
        size = _size(size_line)
        if size == 0:
            return self._last(rest)
        self._raw, self._left = rest, size + 2
        return b""

    def _piece(self) -> bytes | None:
        if self._left <= 2:
            if len(self._raw) < self._left:
                return None
            self._raw, self._left = self._raw[self._left :], 0
            return b""
        if not self._raw:
            return None
        piece = self._raw[: self._left - 2]
        self._raw, self._left = self._raw[len(piece) :], self._left - len(piece)
        return piece

    def _last(self, rest: bytes) -> bytes | None:
        if len(rest) < 2:
            return None
        self._raw, self.ended = rest[2:], True
        return b""


def _size(line: bytes) -> int:
    try:
        return int(line, 16)
    except ValueError as error:
        raise broken("not the size of a chunk", line) from error
