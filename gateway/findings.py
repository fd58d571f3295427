"""What is wrong with a value by its JSON Schema, in our words: the library's repeat the value, which may be long."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import jsonschema_rs

from gateway.problems import Problem

MOST_FINDINGS = 20
# Of anything that the caller wrote; enough to recognise it.
SHOWN_CHARACTERS = 60

# The library makes all errors before it shows the first: 1.8 s and 250 MB for 130,000 wrong values, 67 s and 9 GB for
# what a body may have. Of a larger input only the first one is looked for.
MOST_VALUES = 1000

_SENTENCES = {
    "maxLength": "may have at most {limit} characters",
    "minLength": "must have at least {limit} characters",
    "maximum": "may be at most {limit}",
    "minimum": "must be at least {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "maxItems": "may have at most {limit} items",
    "minItems": "must have at least {limit} items",
    "maxProperties": "may have at most {limit} members",
    "minProperties": "must have at least {limit} members",
    "multipleOf": "must be a multiple of {multiple_of}",
    "required": "lacks the member {property}",
    "type": "must be of type {types}",
    "enum": "must be one of {options}",
    "const": "must be {expected_value}",
    "pattern": "must match {pattern}",
    "format": "must have the format {format}",
}


def check(validator: jsonschema_rs.Validator, value: object, under: Sequence[str] = ()) -> None:
    """Raise Problem invalid_input with at most MOST_FINDINGS errors, their pointers under `under`."""
    errors = list(islice(_findings(validator, value, under), MOST_FINDINGS))
    if errors:
        raise invalid(errors)


def finding(path: Sequence[str | int], message: str) -> dict[str, str]:
    """One error as it stands in the answer."""
    return {"pointer": "".join(f"/{_escaped(part)}" for part in path), "message": message}


def invalid(errors: Iterable[dict[str, str]]) -> Problem:
    """The problem that carries the errors."""
    return Problem(
        "invalid_input", "The request does not have the form that is asked for; see errors.", errors=[*errors]
    )


def _findings(validator: jsonschema_rs.Validator, value: object, under: Sequence[str]) -> Iterator[dict[str, str]]:
    for error in _errors(validator, value):
        yield finding([*under, *error.instance_path], _message(error.kind))


def _errors(validator: jsonschema_rs.Validator, value: object) -> Iterable[jsonschema_rs.ValidationError]:
    if _is_small(value):
        return validator.iter_errors(value)
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return (error,)
    return ()


def _is_small(value: object) -> bool:
    """Whether it has at most MOST_VALUES values, itself and all inside it."""
    level: list[object] = [value]
    left = MOST_VALUES
    while level and left >= 0:
        left -= len(level)
        inside = (
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
        )
        level = list(islice(chain.from_iterable(inside), left + 1)) if left >= 0 else []
    return left >= 0


def _message(kind: Any) -> str:
    if kind.name == "additionalProperties":
        return f"has members that are not known here: {_shown(', '.join(map(str, kind.unexpected[:5])))}"
    sentence = _SENTENCES.get(kind.name)
    if sentence is None:
        return f"does not keep the rule {kind.name!r} of the schema"
    try:
        return _shown(sentence.format_map(_Said(kind)), 200)
    except AttributeError:
        return f"does not keep the rule {kind.name!r} of the schema"


class _Said(dict[str, object]):
    """Looks a word of a sentence up where the library keeps it."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: str) -> object:
        return getattr(self._kind, name)


def _shown(text: str, most: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _escaped(part: str | int) -> str:
    return _shown(str(part)).replace("~", "~0").replace("/", "~1")
