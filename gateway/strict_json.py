"""JSON that every reader understands alike: no doubled names, no NaN, no number that a double cannot hold.

What a value is compared by is in here too. RFC 8785 says when two bodies are the same; its text is not needed, only
something that is equal exactly when the RFC's is. Numbers are made canonical while they are read (`1.0` and `1e0` are
`1`), and orjson sorts the names: 10 ms for 100,000 members where the rfc8785 package takes 170, and 16 ms against
1.8 s for 2.6 million empty strings. A test holds the two against each other.
"""

import hashlib
import json
import re
from json.decoder import JSONDecodeError
from typing import Any, NoReturn

import orjson

from gateway.problems import Problem
from schema.text import clean_json

# Beyond it a double, and so JavaScript, cannot tell neighbours apart: RFC 8785, 3.2.2.3 and RFC 7493, 2.2.
LARGEST_INTEGER = 2**53 - 1
_LARGEST_DIGITS = len(str(-LARGEST_INTEGER))
MOST_LEVELS = 64

_BOM = b"\xef\xbb\xbf"
# The only spellings that can bring in a NUL or a lone surrogate: raw ones are no valid JSON or no valid UTF-8.
_UNCLEAN = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def parse(body: bytes) -> Any:
    """The value of a body, with NUL and lone surrogates replaced by U+FFFD. Raises Problem bad_json."""
    if body.startswith(_BOM):
        _refuse("begins with a byte order mark; send plain UTF-8")
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        _refuse(f"is not valid UTF-8 at byte {error.start}")
    except JSONDecodeError as error:
        _refuse(f"is not valid JSON at line {error.lineno}, column {error.colno}")
    except RecursionError:
        _refuse(f"is nested deeper than {MOST_LEVELS} levels")
    if body.count(b"[") + body.count(b"{") > MOST_LEVELS:
        _check_levels(value)
    return clean_json(value) if _UNCLEAN.search(body) else value


def digest(value: Any) -> bytes:
    """SHA-256 of a parsed value; equal for two bodies exactly when their RFC 8785 forms are."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).digest()


def _refuse(why: str) -> NoReturn:
    raise Problem("bad_json", f"The body {why}.")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("has an object with two members of one name")
    return members


def _integer(text: str) -> int:
    # The length first: to read a million digits as one number takes minutes.
    if len(text) > _LARGEST_DIGITS or abs(value := int(text)) > LARGEST_INTEGER:
        _refuse("has an integer beyond 2^53-1; send it as a string")
    return value


def _fraction(text: str) -> float | int:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        _refuse("has a number that no double can hold")
    return int(value) if value.is_integer() and abs(value) <= LARGEST_INTEGER else value


def _constant(name: str) -> NoReturn:
    _refuse(f"has {name}, which is not JSON")


def _check_levels(value: Any) -> None:
    """Level by level instead of by recursion, which a deep value would end."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MOST_LEVELS:
            _refuse(f"is nested deeper than {MOST_LEVELS} levels")
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)
