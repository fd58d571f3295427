"""Server-sent events from bytes: the `data` of each event, and nothing else.

Chat completions use no other field, and their JSON can be read from bytes, so nothing here is decoded;
httpx2's own parser decodes and counts every line, one async step for each event.
"""

from __future__ import annotations

MAX_FRAME_BYTES = 8 * 1024 * 1024  # lines of 3 MB exist (images as text); far more is no answer to a job

_DONE = b"[DONE]"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameTooLargeError(Exception):
    """An event passed `MAX_FRAME_BYTES`, so the stream cannot be followed any more."""


class FrameReader:
    """State of one stream; `feed` it the bytes as they come. Lines end with LF, CRLF or CR."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line without its end; a list, or a long line would be quadratic
        self._data: list[bytes] = []
        self._bytes = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that is complete now. Raises `FrameTooLargeError`."""
        if not self._started:
            self._started = True
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        if self._is_one_event(chunk):
            return [chunk[6:-2]]
        if self._after_cr or b"\r" in chunk:
            chunk = self._only_lf(chunk)
        self._bytes += len(chunk)
        if b"\n" not in chunk:
            self._parts.append(chunk)
            self._check()
            return []
        *lines, rest = b"".join([*self._parts, chunk]).split(b"\n")
        self._parts = [rest]
        frames = self._frames(lines)
        self._check()
        return frames

    def rest(self) -> list[bytes]:
        """A last `[DONE]` whose blank line never came; anything else unfinished is no event."""
        last = b"".join(self._parts).removeprefix(b"data:").strip()
        return [_DONE] if _DONE in (last, *self._data) else []

    def _frames(self, lines: list[bytes]) -> list[bytes]:
        frames = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                if self._data:
                    frames.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data = []
                self._bytes = len(self._parts[0])
        return frames

    def _is_one_event(self, chunk: bytes) -> bool:
        """Whether it is just that and nothing waits, as nearly always in a stream of tokens: half the work."""
        return (
            not self._bytes
            and not self._after_cr
            and chunk.startswith(b"data: ")
            and chunk.endswith(b"\n\n")
            and chunk.count(b"\n") == 2
            and b"\r" not in chunk
        )

    def _only_lf(self, chunk: bytes) -> bytes:
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")  # its CR has ended the line already
        self._after_cr = chunk.endswith(b"\r") if chunk else self._after_cr
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check(self) -> None:
        if self._bytes > MAX_FRAME_BYTES:
            raise FrameTooLargeError
