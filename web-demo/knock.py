"""Asks the gateway, as the page would, whether a job can be sent to it."""

import http.client
import json
from collections.abc import Mapping

ANSWER_SECONDS = 2


def can_take_jobs(host: str, port: int) -> bool:
    """True once the gateway is ready and a worker has said what it can do; blocks for a few seconds at most.

    Opening a session also makes the tenant `demo`.
    """
    try:
        _ask(host, port, "GET", "/readyz", {})
        headers, _ = _ask(host, port, "POST", "/demo/session", {})
        cookies = "; ".join(cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie", []))
        _, answer = _ask(host, port, "GET", "/api/ai/kinds", {"Cookie": cookies})
        return bool(json.loads(answer)["kinds"])
    except (OSError, http.client.HTTPException):
        return False


def _ask(
    host: str, port: int, method: str, path: str, headers: Mapping[str, str]
) -> tuple[http.client.HTTPMessage, bytes]:
    """Headers and body of a 2xx answer; raises HTTPException for any other."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read()
        if answer.status // 100 != 2:
            raise http.client.HTTPException(answer.status)
        return answer.msg, body
    finally:
        connection.close()
