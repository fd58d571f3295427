"""One cookie out of the header, as it was sent."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from gateway.cookies import cookie_of


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ([], None),
        (["outlive=a"], "a"),
        (["x=1; outlive=a.b-c_d; y=2"], "a.b-c_d"),
        (["x=1;outlive=a"], "a"),
        (["x=outlive=b; outlive=a=="], "a=="),
        (["outlive2=b; xoutlive=c; OUTLIVE=d"], None),
        (["outlive=a; outlive=b"], "a"),
        (["x=1", "outlive=a"], "a"),
        (["outlive"], ""),
        ([";;=;outlive=;"], ""),
    ],
)
def test_the_first_of_its_name(headers: list[str], value: str | None) -> None:
    scope = {"type": "http", "headers": [(b"cookie", header.encode()) for header in headers]}
    assert cookie_of(Request(scope), "outlive") == value
