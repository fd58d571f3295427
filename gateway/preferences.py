"""The Prefer header (RFC 7240), of which `wait` is understood here."""

import re
from collections.abc import Iterator

from starlette.datastructures import Headers

# Longer waits meet the time-outs of proxies, 60 s by custom; docs/protocol.md 3.
WAIT_MOST_SECONDS = 50

# Parts between commas; a comma inside quotes parts nothing.
_PART = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_NAME = re.compile(r"[ \t]*([^\s=;\"]+)[ \t]*(?:[=;].*)?", re.DOTALL)
_WAIT = re.compile(r'[^=]*=[ \t]*(?:"([0-9]+)"|([0-9]+))[ \t]*(?:;.*)?', re.DOTALL)


def preferred_wait(headers: Headers) -> int | None:
    """The seconds that the caller would wait, at most WAIT_MOST_SECONDS; None without the preference.

    The first `wait` counts (RFC 7240, 2); one that is malformed is ignored.
    """
    first = next(_parts(headers, "wait"), None)
    match = None if first is None else _WAIT.fullmatch(first)
    if match is None:
        return None
    digits = (match[1] or match[2]).lstrip("0")
    # The length first: thousands of digits are no number that int() takes.
    return min(int(digits or 0), WAIT_MOST_SECONDS) if len(digits) < 10 else WAIT_MOST_SECONDS


def _parts(headers: Headers, wanted: str) -> Iterator[str]:
    for part in _PART.findall(",".join(headers.getlist("prefer"))):
        match = _NAME.fullmatch(part)
        if match is not None and match[1].lower() == wanted:
            yield part
