"""What a caller takes and what can be given: the Accept header."""

import orjson
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from gateway.problems import CONTENT_TYPE, Problem

JSON = "application/json"


def accepts(headers: Headers, media_type: str) -> bool:
    """Whether the Accept header, if there is one, lets `media_type` through (RFC 9110, 12.5.1)."""
    ranges = ",".join(headers.getlist("accept"))
    if not ranges.strip():
        return True
    wanted = {media_type: 2, f"{media_type.partition('/')[0]}/*": 1, "*/*": 0}
    found = [(wanted[name], quality) for name, quality in map(_range, ranges.split(",")) if name in wanted]
    return bool(found) and max(found)[1] > 0


def check_accepts_json(request: Request) -> None:
    """Raise Problem not_acceptable where the caller takes no JSON."""
    if not accepts(request.headers, JSON) and not accepts(request.headers, CONTENT_TYPE):
        raise Problem("not_acceptable", "This address answers in application/json; let Accept have it.")


def json_answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The value as the whole answer."""
    return Response(orjson.dumps(value), status, headers, JSON)


def _range(text: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
    try:
        return name, float(quality)
    except ValueError:
        return name, 0.0
