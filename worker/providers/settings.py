"""The providers file: TOML tables `[providers.NAME]` -> frozen settings, each value checked.

Every refusal is one sentence that names the key and what it accepts, since the reader is somebody
whose worker has just refused to start.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import httpx2

from worker.providers.profile import PROFILES, Profile
from worker.providers.provider import TokenPrice
from worker.providers.watchdog import TimeLimits

ProviderType = Literal["anthropic", "custom", "extractive", "openai_chat", "openai_responses"]

READING_WORDS_PER_SECOND = 10.0
"""A little over a good reader's 4 to 5 words a second: text appears ahead of the eye, not all at once."""

OUTPUT_TOKENS = 8192
"""All models of Anthropic's that are there can say so much."""

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
_OURS = frozenset({"accept", "accept-encoding", "authorization", "content-type", "content-length", "host"})
_CLASS = re.compile(r"[^:]+:[A-Za-z_]\w*")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_MAX_SECONDS = 86_400.0
_COMMON = {"type", "max_running", "default"}
_MODEL_KEYS = _COMMON | {
    "base_url",
    "api_key_env",
    "models",
    "connect",
    "first_chunk",
    "silence",
    "total",
    "price_input_usd_per_million",
    "price_output_usd_per_million",
}
_KEYS = {
    "anthropic": _MODEL_KEYS | {"max_output_tokens"},
    "custom": _COMMON | {"class", "models", "api_key_env", "options"},
    "extractive": _COMMON | {"words_per_second"},
    "openai_chat": _MODEL_KEYS | {"profile", "idempotency_header"},
    "openai_responses": _MODEL_KEYS | {"idempotency_header"},
}


class ProvidersFileError(ValueError):
    """The providers file cannot be used; the message names the key and what it accepts."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One `[providers.NAME]` table. `api_key` is the value of the variable and never printed.

    `words_per_second` belongs to `extractive` (0: as fast as it goes); `max_running` None means no limit. Without
    `default` it works only for jobs that name it. `profile` belongs to `openai_chat`, None where the address tells.
    `idempotency_header` is what an endpoint deduplicates by. `max_output_tokens` belongs to `anthropic`, which wants
    to be told, and is for requests that name none. `made_by`, a class, and its own `options` belong to `custom`.
    """

    name: str
    type: ProviderType
    base_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] = ()
    max_running: int | None = None
    limits: TimeLimits = field(default_factory=TimeLimits)
    price: TokenPrice | None = None
    words_per_second: float = READING_WORDS_PER_SECOND
    default: bool = True
    profile: Profile | None = None
    idempotency_header: str | None = None
    max_output_tokens: int = OUTPUT_TOKENS
    made_by: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def read_file(path: Path, environ: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    """The providers of one file, in its order. Raises `ProvidersFileError`."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ProvidersFileError(f"OUTLIVE_PROVIDERS names {path}: {reason}; give a readable file.") from None
    except ValueError as error:
        raise ProvidersFileError(f"{path} is not TOML in UTF-8: {error}.") from None
    tables = document.pop("providers", {})
    if document or not isinstance(tables, dict):
        stray = next(iter(document), "providers")
        raise ProvidersFileError(f"{path}: {stray}: only tables [providers.NAME] are accepted.")
    return tuple(_Table(path, name, table, environ).settings() for name, table in tables.items())


class _Table:
    """Reads one table key by key, so that a refusal can say where."""

    def __init__(self, path: Path, name: str, table: object, environ: Mapping[str, str]) -> None:
        self._path, self._name, self._environ = path, name, environ
        if not _NAME.fullmatch(name):
            self._refuse(None, "the name takes 1 to 63 of a-z, 0-9, _ and -, and starts with no sign")
        if not isinstance(table, dict):
            self._refuse(None, "must be a table")
        self._table = cast("dict[str, Any]", table)

    def settings(self) -> ProviderSettings:
        kind = self._type()
        stray = self._table.keys() - _KEYS[kind]
        if stray:
            accepted = ", ".join(sorted(_KEYS[kind]))
            self._refuse(min(stray), f"is not known for type {kind}; accepted are {accepted}")
        if kind == "extractive":
            pace = self._number("words_per_second", READING_WORDS_PER_SECOND, 1000.0)
            most = self._whole("max_running", 1_000_000)
            return ProviderSettings(
                self._name, kind, max_running=most, words_per_second=pace, default=self._default()
            )
        if kind == "custom":
            return self._custom()
        return ProviderSettings(
            self._name,
            kind,
            base_url=self._base_url(),
            api_key=self._api_key(),
            models=self._models(),
            max_running=self._whole("max_running", 1_000_000),
            limits=self._limits(),
            price=self._price(),
            default=self._default(),
            profile=self._profile(),
            idempotency_header=self._idempotency_header(),
            max_output_tokens=self._whole("max_output_tokens", 1_000_000) or OUTPUT_TOKENS,
        )

    def _custom(self) -> ProviderSettings:
        made_by, options = self._table.get("class"), self._table.get("options", {})
        if not isinstance(made_by, str) or not _CLASS.fullmatch(made_by):
            self._refuse(
                "class", 'must name a class, as in "my_provider.py:MyProvider" or "package.module:MyProvider"'
            )
        if not isinstance(options, dict):
            self._refuse("options", "must be a table of what the class wants to know")
        return ProviderSettings(
            self._name,
            "custom",
            api_key=self._api_key(),
            models=self._models() if "models" in self._table else (),
            max_running=self._whole("max_running", 1_000_000),
            default=self._default(),
            made_by=made_by,
            options=options,
        )

    def _default(self) -> bool:
        given = self._table.get("default", True)
        if not isinstance(given, bool):
            self._refuse("default", "must be true or false; false: only for jobs that name it")
        return given

    def _profile(self) -> Profile | None:
        given = self._table.get("profile")
        if given is not None and given not in PROFILES:
            self._refuse("profile", f"must be one of {', '.join(PROFILES)}, or left out")
        return PROFILES.get(str(given))

    def _idempotency_header(self) -> str | None:
        given = self._table.get("idempotency_header")
        fits = isinstance(given, str) and _HEADER.fullmatch(given) and given.lower() not in _OURS
        if given is not None and not fits:
            self._refuse("idempotency_header", 'must be the name of a header such as "Idempotency-Key"')
        return given

    def _type(self) -> ProviderType:
        given = self._table.get("type")
        if not isinstance(given, str) or given not in _KEYS:
            self._refuse("type", f"must be one of {', '.join(sorted(_KEYS))}")
        return cast("ProviderType", given)

    def _base_url(self) -> str:
        given = self._table.get("base_url")
        try:
            url = httpx2.URL(given) if isinstance(given, str) else None
        except httpx2.InvalidURL:
            url = None
        if url is None or url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query:
            self._refuse("base_url", 'must be an http or https address such as "http://127.0.0.1:8000/v1"')
        return str(given).rstrip("/")

    def _api_key(self) -> str | None:
        variable = self._table.get("api_key_env")
        if variable is None:
            return None
        if not isinstance(variable, str) or not variable:
            self._refuse("api_key_env", "must be the name of an environment variable that holds the key")
        key = usable_key(self._environ.get(variable))
        if key is None:
            self._refuse("api_key_env", f"names {variable}, which is not set to a key; set it or leave this out")
        return key

    def _models(self) -> tuple[str, ...]:
        given = self._table.get("models")
        if not isinstance(given, list) or not given or not all(_is_model(model) for model in given):
            self._refuse("models", 'must be a list of model names such as ["llama3.1"], the default first')
        return tuple(dict.fromkeys(cast("list[str]", given)))

    def _whole(self, key: str, most: int) -> int | None:
        given = self._table.get(key)
        if given is not None and (type(given) is not int or not 1 <= given <= most):
            self._refuse(key, f"must be a whole number from 1 to {most}")
        return given

    def _limits(self) -> TimeLimits:
        usual = TimeLimits()
        return TimeLimits(
            self._number("connect", usual.connect_s, _MAX_SECONDS, positive=True),
            self._number("first_chunk", usual.first_chunk_s, _MAX_SECONDS, positive=True),
            self._number("silence", usual.silence_s, _MAX_SECONDS, positive=True),
            self._number("total", usual.total_s, _MAX_SECONDS, positive=True),
        )

    def _price(self) -> TokenPrice | None:
        names = ("price_input_usd_per_million", "price_output_usd_per_million")
        given = [name for name in names if name in self._table]
        if not given:
            return None
        if len(given) == 1:
            self._refuse(given[0], "needs the other price beside it, or neither")
        input_usd, output_usd = (Decimal(str(self._number(name, 0.0, 1_000_000.0))) for name in names)
        return TokenPrice(input_usd, output_usd)

    def _number(self, key: str, default: float, most: float, *, positive: bool = False) -> float:
        given = self._table.get(key, default)
        fits = type(given) in {int, float} and math.isfinite(given) and 0 <= given <= most
        if not fits or (positive and given == 0):
            least = "more than 0" if positive else "0 or more"
            self._refuse(key, f"must be a number, {least} and at most {most:g}")
        return float(given)

    def _refuse(self, key: str | None, accepts: str) -> NoReturn:
        where = f"[providers.{self._name}]" + (f" {key}" if key else "")
        raise ProvidersFileError(f"{self._path}: {where} {accepts}.")


def usable_key(value: str | None) -> str | None:
    """The key without the spaces around it, if it can stand in a header; else None."""
    key = (value or "").strip()
    return key if key and key.isascii() and key.isprintable() else None


def _is_model(name: object) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= 200 and name.isprintable() and name == name.strip()
