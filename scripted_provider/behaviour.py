"""What a request wants to happen to it, said in the name of its model.

    "well"                              answers
    "cut?after=12&times=1&rate=20"      20 pieces a second; the first time the connection breaks after 12 of them
    "status?code=429&retry=7&times=2"   twice 429 with Retry-After, then it answers

The name is one of NAMES; a request is the same as one before if it asks the same of the same model.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

NAMES = {
    "well": "answers",
    "silent": "takes the request and never answers",
    "stall": "says nothing more after some pieces, and keeps the connection",
    "pings": "the same, but pings",
    "cut": "the connection breaks in the middle of a piece",
    "no-end": "a clean end without the mark that says that it is one",
    "stream-error": "an error in the stream, after some pieces",
    "error-200": "status 200, and an error as its body",
    "status": "an error status; `code`, `error`, `retry`, `retry_ms`, `retry_date`",
    "refusal": "the model refuses",
    "filter": "a filter ends the answer",
    "length": "the answer is cut at its longest",
    "empty": "empty frames among the others",
    "huge": "one piece of 3 MB in one line",
    "goes-on": "generates on after its reader has left",
}


class UnknownBehaviour(ValueError):
    """The model's name is none of NAMES, or has a parameter that there is not."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`after` pieces it happens, the first `times` of the same request; 0 = always. `rate` 0 = as fast as it goes.

    `stamped`: each piece is the moment at which it was made, for whoever measures.
    """

    name: str
    after: int = 3
    times: int = 0
    pieces: int = 40
    rate: float = 0
    words: str = ""
    code: int = 500
    error: str = ""
    retry: str = ""
    retry_ms: str = ""
    retry_date: str = ""
    stamped: int = 0
    chunk: int = 0
    bytes: int = 0
    crlf: int = 0

    @classmethod
    def of(cls, model: str) -> Behaviour:
        """Raises UnknownBehaviour."""
        name, _, query = model.partition("?")
        types = get_type_hints(cls)
        given: dict[str, Any] = dict(parse_qsl(query))
        if name not in NAMES or not given.keys() <= {field.name for field in fields(cls)} - {"name"}:
            raise UnknownBehaviour(model)
        try:
            return cls(name, **{key: types[key](value) for key, value in given.items()})
        except ValueError:
            raise UnknownBehaviour(model) from None
