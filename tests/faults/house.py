"""Gateway, caller and tables of one test, and the providers that its workers know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from schema.database import Database
from tests.support.api import Api, call_api, make_key
from tests.support.jobs import opened
from tests.support.servers import Environment, Gateway, start_gateway

MODELS = ("m1", "m2", "m3", "m4")

TEXT = " ".join(
    f"Sentence number {n} tells how the {thing} of the harbour, caf\u00e9, \U0001f6a2 and all, met the sea."
    for n, thing in enumerate(["crane", "tug", "pilot", "lamp", "bell", "buoy", "quay", "gull", "rope", "mast"] * 2)
)


@dataclass(frozen=True, slots=True)
class House:
    """`url` is the database's address, `database` a pool of the test's own on it."""

    url: str
    database: Database
    gateway: Gateway
    key: str
    api: Api


@asynccontextmanager
async def open_house(database_url: str, environment: Environment | None = None) -> AsyncIterator[House]:
    """A gateway without workers."""
    key = await make_key(database_url)
    async with (
        opened(database_url, pool_size=2) as database,
        start_gateway(database_url, environment) as gateway,
        call_api(gateway.url, key) as api,
    ):
        yield House(database_url, database, gateway, key, api)


def write_providers(folder: Path, *, words_per_second: float = 0, fake_url: str | None = None) -> Path:
    """A providers file: `extractive` at that pace (0 as fast as it goes), and `fake` with MODELS where it is given.

    A model is the default of every kind, so `summarize` on this machine has to be asked for by name then.
    """
    tables = f'[providers.extractive]\ntype = "extractive"\nwords_per_second = {words_per_second}\n'
    if fake_url is not None:
        models = ", ".join(f'"{model}"' for model in MODELS)
        tables += f'[providers.fake]\ntype = "openai_chat"\nbase_url = "{fake_url}"\nmodels = [{models}]\n'
        tables += "price_input_usd_per_million = 1\nprice_output_usd_per_million = 2\n"
    path = folder / "providers.toml"
    path.write_text(tables, encoding="utf-8")
    return path


def says(text: str) -> dict[str, object]:
    """The input of a `chat` of one message."""
    return {"messages": [{"role": "user", "content": text}]}
