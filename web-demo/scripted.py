"""The demo's providers file: what OUTLIVE_PROVIDERS names, and the scripted provider, nobody's default."""

from collections.abc import Mapping
from pathlib import Path

SCRIPTED_SAYS = "scripted provider listening on "

# What the page's menu offers; scripted_provider/behaviour.py says what each of them is. 12 pieces a second are a
# comfortable pace, and whatever breaks, breaks in the second second.
MODELS = (
    "well?rate=12&pieces=52",
    "cut?after=14&times=1&rate=12&pieces=52",
    "no-end?after=14&times=1&rate=12&pieces=52",
    "stall?after=14&times=1&rate=12&pieces=52",
    "status?code=429&retry=5&times=1&rate=12&pieces=52",
    "status?code=503&times=2&rate=12&pieces=52",
    "error-200?times=1&rate=12&pieces=52",
    "refusal?rate=12&pieces=52",
)
BACKGROUND_MODELS = ("cut?after=14&rate=12&pieces=52",)
# Seconds: a demonstration of silence must not take the two minutes that a real model may be silent.
SILENCE = 4

_TABLES = """
[providers.scripted]
type = "openai_chat"
base_url = "{url}"
models = [{models}]
silence = {silence}
default = false

[providers.scripted-background]
type = "openai_responses"
base_url = "{url}"
models = [{background}]
silence = {silence}
default = false
"""


class ProvidersUnreadable(Exception):
    """The user's own providers file cannot be read; the message says what to do."""


def write_providers(folder: Path, url: str, environ: Mapping[str, str]) -> Path:
    """The file for the demo's workers. Raises ProvidersUnreadable."""
    own = environ.get("OUTLIVE_PROVIDERS")
    try:
        text = Path(own).read_text("utf-8") if own else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProvidersUnreadable(f"OUTLIVE_PROVIDERS names {own}, which cannot be read: {error}.") from error
    path = folder.absolute() / "providers.toml"
    lists = {"models": _list(MODELS), "background": _list(BACKGROUND_MODELS)}
    # A table of the user's own with that name would be there twice: then it is his, and the menu stays away.
    ours = "" if "[providers.scripted" in text else _TABLES.format(url=url.strip(), silence=SILENCE, **lists)
    path.write_text(f"{text}\n{ours}", encoding="utf-8")
    return path


def _list(models: tuple[str, ...]) -> str:
    return ", ".join(f'"{model}"' for model in models)
