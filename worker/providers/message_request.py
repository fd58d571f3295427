"""What is asked of Anthropic's messages."""

from __future__ import annotations

from typing import Any

from schema.text import clean_text
from worker.providers.provider import Prompt


def message_body(model: str, prompt: Prompt, most_output_tokens: int) -> dict[str, Any]:
    """The JSON of one streaming request; what the system says stands beside the conversation there.

    `most_output_tokens` is for a prompt that names none: the API wants a number.
    """
    turns = [(message.role, clean_text(message.content)) for message in prompt.messages]
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": prompt.max_output_tokens or most_output_tokens,
        "messages": [{"role": role, "content": text} for role, text in turns if role != "system"],
        "stream": True,
    }
    system = "\n\n".join(text for role, text in turns if role == "system")
    if system:
        body["system"] = system
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    return body
