"""A cookie of ours out of the Cookie header.

The standard library's parser is not used: until Python 3.11.10 it takes time quadratic in a value of backslashes
(CVE-2024-7592), and 60 KB of them, which need no credential, held every stream for 13 s.
"""

from starlette.requests import HTTPConnection


def cookie_of(request: HTTPConnection, name: str) -> str | None:
    """The first cookie of that name; its value as it was sent, since what we set needs no quotes."""
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            found, _, value = pair.partition("=")
            if found.strip() == name:
                return value.strip()
    return None
