"""The Accept header, as RFC 9110 ranks it."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from gateway.negotiation import accepts


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (None, True),
        ("", True),
        ("*/*", True),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/*", True),
        ("text/html, application/json;q=0.1", True),
        ("text/html", False),
        ("application/json;q=0", False),
        ("application/json;q=0, */*", False),
        ("*/*;q=0, application/json", True),
        ("*/*;q=0", False),
        ("application/json;q=x", False),
        ("nonsense", False),
    ],
)
def test_accepts(header: str | None, accepted: bool) -> None:
    headers = Headers({} if header is None else {"accept": header})
    assert accepts(headers, "application/json") is accepted
