"""The query of an address: each parameter known, given once, and of its form."""

from collections.abc import Collection, Mapping

from starlette.requests import Request

from gateway.problems import Problem


def read_query(request: Request, known: Collection[str]) -> Mapping[str, str]:
    """The parameters. Raises Problem invalid_query for one that is unknown or doubled: both are mistakes."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise invalid_query(f"this address knows only {', '.join(sorted(known))}")
        if name in found:
            raise invalid_query(f"{name} may be given once")
        if "\x00" in value:
            raise invalid_query(f"{name} has a NUL in it")
        found[name] = value
    return found


def whole_number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A parameter that is a number. Raises Problem invalid_query."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise invalid_query(f"{name} has to be a whole number from {least} to {most}")
    return int(text)


def invalid_query(why: str) -> Problem:
    """`why` is a phrase that says what would be right."""
    return Problem("invalid_query", f"The query is not right: {why}.")
