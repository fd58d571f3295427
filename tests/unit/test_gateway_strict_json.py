"""Two bodies are the same exactly when RFC 8785 writes them the same."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from gateway.problems import Problem
from gateway.strict_json import LARGEST_INTEGER, digest, parse

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
numbers = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
# Beyond these the RFC writes doubles with the digits of integers that are refused when they are sent as such.
small_numbers = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | st.floats(-LARGEST_INTEGER, LARGEST_INTEGER)


def values_of(number: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | number | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


def canonical(value: Any) -> bytes:
    return rfc8785.dumps(value)


@given(values_of(small_numbers))
def test_every_spelling_of_a_value_has_one_digest(value: Any) -> None:
    spellings = [
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, indent=1, separators=(" ,", " : ")),
        canonical(value).decode(),
    ]
    assert len({digest(parse(spelling.encode())) for spelling in spellings}) == 1


@given(values_of(numbers), values_of(numbers))
def test_two_values_have_one_digest_exactly_when_they_have_one_canonical_form(one: Any, two: Any) -> None:
    same = canonical(one) == canonical(two)
    digests = [digest(parse(json.dumps(value).encode())) for value in (one, two)]
    assert (digests[0] == digests[1]) == same


@given(st.lists(numbers, min_size=2, max_size=2))
def test_numbers_are_compared_as_doubles(pair: list[float]) -> None:
    same = canonical(pair[0]) == canonical(pair[1])
    one, two = [digest(parse(json.dumps(number).encode())) for number in pair]
    assert (one == two) == same


@pytest.mark.parametrize(
    ("one", "two"), [(b"1", b"1.0"), (b"1", b"1e0"), (b"100", b"1E2"), (b"0", b"-0"), (b"0", b"-0.0")]
)
def test_numbers_that_are_the_same(one: bytes, two: bytes) -> None:
    assert digest(parse(one)) == digest(parse(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [(b"1", b'"1"'), (b"true", b"1"), (b"null", b"{}"), (b"[]", b"{}"), (b"0.1", b"0.10000000000000001e1")],
)
def test_values_that_differ(one: bytes, two: bytes) -> None:
    assert digest(parse(one)) != digest(parse(two))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_problem(body: bytes) -> None:
    with suppress(Problem):
        parse(body)


def test_what_no_database_holds_becomes_the_replacement_character() -> None:
    assert parse(b'{"a\\u0000": ["\\ud800", "\\uDFFF", "\\ud83d\\ude00"]}') == {
        "a\ufffd": ["\ufffd", "\ufffd", "\U0001f600"]
    }


def test_the_message_says_where_and_repeats_nothing() -> None:
    with pytest.raises(Problem) as caught:
        parse(b'{"secret": "word"')
    assert "line 1, column" in caught.value.detail
    assert "secret" not in caught.value.detail
