"""What is asked of a Responses endpoint."""

from __future__ import annotations

from typing import Any

from schema.text import clean_text
from worker.providers.provider import Prompt


def response_body(model: str, prompt: Prompt) -> dict[str, Any]:
    """The JSON of one request in the background; NUL and lone surrogates become U+FFFD.

    Only what was begun with `background` can be reattached to, and only what is stored can be asked for.
    """
    body: dict[str, Any] = {
        "model": model,
        "input": [{"role": message.role, "content": clean_text(message.content)} for message in prompt.messages],
        "background": True,
        "store": True,
        "stream": True,
    }
    if prompt.max_output_tokens is not None:
        body["max_output_tokens"] = prompt.max_output_tokens
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    return body
