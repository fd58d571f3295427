"""What is wrong with an input, at a cost that does not grow with how much is wrong."""

from __future__ import annotations

import pytest

from gateway.findings import MOST_FINDINGS, MOST_VALUES, check
from gateway.kind_book import compiled
from gateway.problems import Problem

LIST = compiled({"type": "object", "properties": {"all": {"type": "array", "items": {"type": "string"}}}})


def pointers(value: object) -> list[str]:
    with pytest.raises(Problem) as caught:
        check(LIST, value)
    errors = caught.value.members["errors"]
    assert isinstance(errors, list)
    return [error["pointer"] for error in errors]


def test_of_a_small_input_many_are_named() -> None:
    assert pointers({"all": [1, "fine", 2]}) == ["/all/0", "/all/2"]
    # The object and the list are values too.
    assert len(pointers({"all": [1] * (MOST_VALUES - 2)})) == MOST_FINDINGS


@pytest.mark.parametrize("count", [MOST_VALUES - 1, 2_000_000])
def test_of_a_large_one_the_first_is_named(count: int) -> None:
    """The library makes all errors at once: 67 s and 9 GB for what a body may have."""
    assert pointers({"all": [1] * count}) == ["/all/0"]


def test_a_large_one_that_is_right_is_right() -> None:
    check(LIST, {"all": ["fine"] * 10_000})
