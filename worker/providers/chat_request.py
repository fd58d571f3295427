"""What is asked of a chat completions endpoint."""

from __future__ import annotations

from typing import Any

from schema.text import clean_text
from worker.providers.provider import Prompt


def request_body(model: str, prompt: Prompt, limit_field: str) -> dict[str, Any]:
    """The JSON of one streaming request; NUL and lone surrogates become U+FFFD."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": clean_text(message.content)} for message in prompt.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if prompt.max_output_tokens is not None:
        body[limit_field] = prompt.max_output_tokens
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    return body
