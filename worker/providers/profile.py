"""How servers that all speak OpenAI's chat completions differ from each other.

Each fact is measured or documented by its maker; docs/providers.md says which. What nobody says is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import httpx2

ProfileName = Literal["compatible", "deepseek", "llamacpp", "ollama", "openai", "openrouter", "vllm"]


@dataclass(frozen=True, slots=True)
class Profile:
    """One server's dialect.

    `needs_reason`: only a finish reason ends an answer; else `[DONE]` alone does, too. `stops_when_closed`: whether
    it generates, and bills, nothing more once the connection is closed. `tells_cost`: whether it can be asked
    afterwards what a call cost, by the id of the request.
    """

    name: ProfileName
    limit_field: str = "max_tokens"
    needs_reason: bool = False
    stops_when_closed: bool | None = None
    tells_cost: bool = False


PROFILES: dict[str, Profile] = {
    each.name: each
    for each in (
        Profile("compatible"),
        # It says `insufficient_system_resource` where it ran out in mid-answer; [DONE] without a reason was not seen.
        Profile("deepseek", needs_reason=True),
        # Its slot is free within 0.4 s of the close.
        Profile("llamacpp", needs_reason=True, stops_when_closed=True),
        # Whole answers with a reason of null were seen; it looks at the connection when it has something to send.
        Profile("ollama"),
        # Newer models refuse `max_tokens`.
        Profile("openai", limit_field="max_completion_tokens", needs_reason=True),
        # Whether the close stops the billing depends on whom it passed the call on to.
        Profile("openrouter", needs_reason=True, tells_cost=True),
        Profile("vllm", needs_reason=True),
    )
}

_HOSTS = {
    "openai.com": "openai",
    "openai.azure.com": "openai",
    "openrouter.ai": "openrouter",
    "deepseek.com": "deepseek",
}


def profile_for(base_url: str) -> Profile:
    """By the host, where that is certain; every other server is a `compatible` one until its table says more."""
    host = httpx2.URL(base_url).host
    known = (name for domain, name in _HOSTS.items() if host == domain or host.endswith(f".{domain}"))
    return PROFILES[next(known, "compatible")]
