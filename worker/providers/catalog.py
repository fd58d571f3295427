"""Which providers this worker has, and which one a job gets that asks for none.

Read once at start; the facts go into the database, so that the gateway can resolve and fix provider
and model when a job is created without knowing any address or key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import assert_never

from worker.handlers.kind import Json, Kind
from worker.providers.anthropic import Anthropic
from worker.providers.custom import build_custom
from worker.providers.extractive import Extractive
from worker.providers.openai_chat import OpenAIChat
from worker.providers.openai_responses import OpenAIResponses
from worker.providers.provider import Provider
from worker.providers.settings import ProviderSettings, read_file, usable_key

EXTRACTIVE = "extractive"
OPENAI_BASE_URL = "https://api.openai.com/v1"
# Cheapest first, because the first one is the default and a default must not surprise on the bill
# (genai-prices 0.2.3: $0.10, $1, $2, $10 a million input tokens). Others: a [providers.openai] table.
OPENAI_MODELS = ("gpt-6-luna", "gpt-6.1-terra", "gpt-6.1-sol", "gpt-6-astra")
ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1"
# The same: $0.10 (from 100,000 tokens on $0.50), $2, $4, $8.
ANTHROPIC_MODELS = ("claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-2")

Choice = tuple[str | None, str | None]
"""Provider and model; the model is None where the provider has none, both where nothing fits."""


class Catalog:
    """The providers of one worker, by name, in the order in which defaults are looked for."""

    def __init__(self, settings: Iterable[ProviderSettings]) -> None:
        self._settings = {one.name: one for one in settings}
        self._providers = {name: _build(one) for name, one in self._settings.items()}

    @classmethod
    def load(cls, path: Path | None, environ: Mapping[str, str]) -> Catalog:
        """The file's providers, then the built-in ones that it does not name itself.

        `path` is OUTLIVE_PROVIDERS. Raises `ProvidersFileError`: one sentence for whoever starts the worker.
        """
        named = read_file(path, environ) if path is not None else ()
        taken = {one.name for one in named}
        return cls([*named, *(one for one in _built_in(environ) if one.name not in taken)])

    @property
    def names(self) -> tuple[str, ...]:
        """All providers, defaults first."""
        return tuple(self._settings)

    def models(self, name: str) -> tuple[str, ...]:
        """A provider's models, its default first; raises KeyError for an unknown provider."""
        return self._settings[name].models

    def provider(self, name: str) -> Provider:
        """The provider itself; raises KeyError for an unknown one."""
        return self._providers[name]

    def default_for(self, kind: Kind) -> Choice:
        """What a job of this kind gets that names no provider; (None, None) if nothing here can do it."""
        if kind.works_with == "none":
            return None, None
        for one in self._settings.values():
            if one.models and one.default:
                return one.name, one.models[0]
        local = next((one.name for one in self._settings.values() if one.type == EXTRACTIVE and one.default), None)
        return (local if kind.works_with == "any" else None), None

    def choices_for(self, kind: Kind) -> dict[str, tuple[str, ...]]:
        """The providers that a job of this kind may name, each with its models; no models = it has none."""
        return {
            one.name: one.models
            for one in self._settings.values()
            if kind.works_with == "any" or (kind.works_with == "models" and one.models)
        }

    def prices_for(self, kind: Kind) -> dict[str, dict[str, dict[str, Json]]]:
        """{provider: {model or "": price}} as far as it is known, for the providers of `choices_for`."""
        choices = self.choices_for(kind)
        return {name: dict(self._prices(name, models)) for name, models in choices.items()}

    def _prices(self, name: str, models: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Json]]]:
        for model in models or (None,):
            price = self._providers[name].price(model)
            if price is not None:
                yield model or "", {**price.as_json()}

    @property
    def limits(self) -> dict[str, int]:
        """{provider: how many of its calls' jobs may run at once}, where the file says so."""
        return {one.name: one.max_running for one in self._settings.values() if one.max_running is not None}


def _built_in(environ: Mapping[str, str]) -> Iterable[ProviderSettings]:
    key = usable_key(environ.get("OPENAI_API_KEY"))
    if key is not None:
        yield ProviderSettings("openai", "openai_chat", base_url=OPENAI_BASE_URL, api_key=key, models=OPENAI_MODELS)
    key = usable_key(environ.get("ANTHROPIC_API_KEY"))
    if key is not None:
        models = ANTHROPIC_MODELS
        yield ProviderSettings("anthropic", "anthropic", base_url=ANTHROPIC_BASE_URL, api_key=key, models=models)
    yield ProviderSettings(EXTRACTIVE, "extractive")


def _build(settings: ProviderSettings) -> Provider:
    match settings.type:
        case "anthropic":
            return Anthropic(settings)
        case "custom":
            return build_custom(settings)
        case "openai_chat":
            return OpenAIChat(settings)
        case "openai_responses":
            return OpenAIResponses(settings)
        case "extractive":
            return Extractive(settings)
        case _:
            assert_never(settings.type)
