"""A provider's key comes from the environment, goes to the provider, and is to be found nowhere else."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from schema.database import Database
from scripted_provider.exchange import Exchange
from scripted_provider.server import Server
from tests.faults.house import open_house, says
from tests.support.processes import ServerProcess
from tests.support.servers import environment_for
from worker.providers.catalog import Catalog

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KEY = "sk-canary-0123456789-that-nobody-may-read"
TYPES = ("openai_chat", "openai_responses", "anthropic")
# What providers do with a key that they do not like: they say it, in every place that they have.
_ECHO = {"message": f"Incorrect API key: {KEY}", "type": KEY, "code": KEY, "param": KEY}
_IN_HEADERS = {"x_request_id": KEY, "request_id": KEY, "retry_after": KEY}
MODELS = ("refused", "in-stream", "in-200", "moved", "garbage", "cut")


async def echo(exchange: Exchange) -> None:
    """Says the key back in each way."""
    match exchange.request.json["model"]:
        case "refused":
            await exchange.answer(401, {"type": "error", "error": _ECHO, "request_id": KEY})
        case "in-stream":
            await exchange.head(200, **_IN_HEADERS)
            await exchange.raw(b"event: error\ndata: " + orjson.dumps({"type": "error", "error": _ECHO}) + b"\n\n")
            await exchange.end()
        case "in-200":
            await exchange.answer(200, {"error": _ECHO})
        case "moved":
            await exchange.answer(307, {"error": _ECHO}, location=f"http://127.0.0.1:9/{KEY}")
        case "garbage":
            await exchange.head(200)
            await exchange.raw(f"data: {{{KEY}\n\n".encode())
            await exchange.end()
        case _:
            await exchange.head(500)
            await exchange.raw(KEY.encode())
            await exchange.cut()


async def everything_in(database: Database) -> str:
    """Every row of every table of ours, as text."""
    tables = await database.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'outlive'"
    )
    rows = [await database.fetch(f"SELECT t::text AS row FROM {table['name']} AS t") for table in tables]
    return "\n".join(row["row"] for each in rows for row in each)


async def test_no_log_no_table_and_no_answer_holds_it(database_url: str, tmp_path: Path) -> None:
    providers = tmp_path / "providers.toml"
    async with Server(echo) as server, open_house(database_url) as house:
        models = ", ".join(f'"{model}"' for model in MODELS)
        providers.write_text(
            "\n".join(
                f'[providers.{kind}]\ntype = "{kind}"\nbase_url = "{server.base_url}"\nmodels = [{models}]\n'
                'api_key_env = "THE_KEY"\n'
                for kind in TYPES
            ),
            encoding="utf-8",
        )
        extra = {"OUTLIVE_PROVIDERS": str(providers), "THE_KEY": KEY, "PYTHONASYNCIODEBUG": "1"}
        async with ServerProcess("tests.faults.debug_worker", environment_for(database_url, extra)) as worker:
            await worker.launch()
            await worker.logs("worker ready")
            answers = []
            for kind in TYPES:
                for model in MODELS:
                    job = await house.api.create_soon(
                        "chat", says("x"), provider=kind, model=model, max_attempts=1, on_unknown="fail"
                    )
                    ended = await house.api.ended(job["job_id"])
                    assert ended["status"] == "failed"
                    answers.append(repr(ended))
            assert await worker.stop() == 0
            log = worker.log_text()
        assert len(server.requests) == len(TYPES) * len(MODELS)
        assert all(KEY in repr(request.headers) for request in server.requests)
        assert "every logger writes" in log
        for told in (log, *answers, await everything_in(house.database), house.gateway.log_text()):
            assert KEY not in told
            assert KEY.upper() not in told.upper()


def test_no_repr_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(
        '[providers.a]\ntype = "anthropic"\nbase_url = "http://127.0.0.1:9"\nmodels = ["m"]\n'
        'api_key_env = "THE_KEY"\n',
        encoding="utf-8",
    )
    catalog = Catalog.load(path, {"THE_KEY": KEY, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY})
    assert set(catalog.names) >= {"a", "openai", "anthropic"}
    for name in catalog.names:
        assert KEY not in repr(catalog.provider(name))
        assert KEY not in repr(vars(catalog.provider(name)))
