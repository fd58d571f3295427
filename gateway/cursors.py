"""Where a reader is: the seq of the last event that it has, 0 for none."""

import re

from starlette.requests import Request

# Canonical decimals of a size that a log can have; anything else was not given out by us.
_CURSOR = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class CursorInvalid(ValueError):
    """The text is no cursor of ours."""


def parse_cursor(text: str) -> int:
    """The seq that `text` names. Raises CursorInvalid."""
    if not _CURSOR.fullmatch(text):
        raise CursorInvalid(text[:40])
    return int(text)


def cursor_of(request: Request) -> int:
    """The request's cursor: the header wins, because a native EventSource reconnects with its first URL."""
    text = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or "0"
    return parse_cursor(text)
