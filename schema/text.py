"""Text as PostgreSQL and UTF-8 can hold it: NUL and lone surrogates become U+FFFD."""

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """`text` with every NUL and every lone surrogate replaced by U+FFFD; usual text comes back as it is."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def clean_json(value: Any) -> Any:
    """The JSON value with every string in it cleaned, names of members too.

    Two names that become equal by it: the last one stands, as a second member of one name would.
    """
    match value:
        case str():
            return clean_text(value)
        case list():
            return [clean_json(item) for item in value]
        case dict():
            return {clean_text(name): clean_json(item) for name, item in value.items()}
        case _:
            return value
