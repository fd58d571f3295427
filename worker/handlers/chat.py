"""`chat`: one answer of a model to a conversation."""

from __future__ import annotations

from typing import cast

from worker.handlers.kind import Answer, Json, Kind, Repeat, RunContext
from worker.providers.provider import Message, Prompt, Role

MAX_MESSAGES = 1_000  # far beyond any conversation; keeps checking cheap
MAX_CONTENT_CHARS = 1_000_000  # as for `summarize`; the model's own context is the real limit
MAX_OUTPUT_TOKENS = 1_000_000

_SCHEMA: dict[str, Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_MESSAGES,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"enum": ["system", "user", "assistant"]},
                    "content": {"type": "string", "maxLength": MAX_CONTENT_CHARS},
                },
                "required": ["role", "content"],
                "additionalProperties": False,
            },
        },
        "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": MAX_OUTPUT_TOKENS},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    },
    "required": ["messages"],
    "additionalProperties": False,
}


async def chat(run: RunContext, input: dict[str, Json]) -> Json:
    """`{"text", "finish_reason", "truncated", "usage"}`; usage is null where the provider reported none."""
    answer = await run.call(_prompt(input))
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "truncated": answer.truncated,
        "usage": _usage(answer),
    }


def _usage(answer: Answer) -> Json:
    if answer.input_tokens is None and answer.output_tokens is None:
        return None
    return {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}


def _prompt(input: dict[str, Json]) -> Prompt:
    turns = cast("list[dict[str, str]]", input["messages"])
    limit = cast("float | None", input.get("max_output_tokens"))
    return Prompt(
        tuple(Message(cast("Role", turn["role"]), turn["content"]) for turn in turns),
        max_output_tokens=None if limit is None else int(limit),
        temperature=cast("float | None", input.get("temperature")),
    )


CHAT = Kind("chat", 1, _SCHEMA, Repeat.SAFE, chat, works_with="models", calls=1)
