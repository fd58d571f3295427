"""JSON as one line that every reader of text sees as one line."""

from typing import Any

import orjson

# Line ends to some readers of text, though not to EventSource; JSON allows them raw, only inside strings.
_SEPARATORS = tuple((sign.encode(), f"\\u{ord(sign):04x}".encode()) for sign in "\u2028\u2029\u0085")


def json_line(value: Any) -> bytes:
    """`value`, which holds no lone surrogate, in UTF-8 with U+2028, U+2029 and U+0085 escaped.

    What the log holds is made by this, so that a limit on its bytes is one on the bytes of the stream's line.
    """
    line = orjson.dumps(value)
    for sign, escaped in _SEPARATORS:
        if sign in line:
            line = line.replace(sign, escaped)
    return line
