"""What a call asks for, as a hash: by it another attempt finds the generation that it can go on with."""

import hashlib
from dataclasses import asdict, replace

import orjson

from schema.text import clean_json
from worker.providers.provider import Prompt


def hash_of(model: str | None, prompt: Prompt) -> bytes:
    """32 bytes, the same for the same model and prompt; its `step_key` is left out, being made of this."""
    asked = clean_json([model, asdict(replace(prompt, step_key=None))])
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).digest()
