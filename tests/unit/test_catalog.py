"""The providers file and what a worker makes of it; a bad file is refused in one sentence."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.postgres import ROOT
from worker.handlers.chat import CHAT
from worker.handlers.kind import Kind, Repeat
from worker.handlers.summarize import SUMMARIZE
from worker.providers.catalog import OPENAI_MODELS, Catalog
from worker.providers.extractive import Extractive
from worker.providers.openai_chat import OpenAIChat
from worker.providers.provider import CallOutcome, Prompt, Receipt, TokenPrice
from worker.providers.settings import ProviderSettings, ProvidersFileError, read_file
from worker.providers.watchdog import TimeLimits

SECRET = "sk-this-is-secret"

FULL = """
[providers.local]
type = "openai_chat"
base_url = "http://127.0.0.1:8000/v1/"
api_key_env = "LOCAL_KEY"
models = ["big", "small"]
max_running = 4
connect = 1
first_chunk = 2.5
silence = 3
total = 4
price_input_usd_per_million = 0.15
price_output_usd_per_million = 2

[providers.extractive]
type = "extractive"
words_per_second = 0
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "providers.toml"
    path.write_text(FULL, "utf-8")
    return path


def test_nothing_but_what_is_built_in() -> None:
    catalog = Catalog.load(None, {})
    assert catalog.names == ("extractive",)
    assert isinstance(catalog.provider("extractive"), Extractive)
    assert catalog.models("extractive") == ()
    assert catalog.default_for(SUMMARIZE) == ("extractive", None)
    assert catalog.default_for(CHAT) == (None, None)


def test_an_openai_key_is_enough() -> None:
    catalog = Catalog.load(None, {"OPENAI_API_KEY": f" {SECRET}\n"})
    assert catalog.names == ("openai", "extractive")
    assert catalog.default_for(SUMMARIZE) == ("openai", OPENAI_MODELS[0])
    assert catalog.default_for(CHAT) == ("openai", OPENAI_MODELS[0])


@pytest.mark.parametrize("key", ["", "  ", "schlüssel", "two\nlines"])
def test_a_key_that_cannot_be_one_is_none(key: str) -> None:
    assert Catalog.load(None, {"OPENAI_API_KEY": key}).names == ("extractive",)


def test_a_whole_file(file: Path) -> None:
    local, extractive = read_file(file, {"LOCAL_KEY": SECRET})
    assert local == ProviderSettings(
        name="local",
        type="openai_chat",
        base_url="http://127.0.0.1:8000/v1",
        api_key=SECRET,
        models=("big", "small"),
        max_running=4,
        limits=TimeLimits(1.0, 2.5, 3.0, 4.0),
        price=TokenPrice(Decimal("0.15"), Decimal("2.0")),
    )
    assert extractive.words_per_second == 0
    assert SECRET not in repr(local)


def test_the_file_comes_first_and_replaces_what_is_built_in(file: Path) -> None:
    catalog = Catalog.load(file, {"LOCAL_KEY": "k", "OPENAI_API_KEY": "k"})
    assert catalog.names == ("local", "extractive", "openai")
    assert isinstance(catalog.provider("local"), OpenAIChat)
    assert catalog.default_for(CHAT) == ("local", "big")
    with pytest.raises(KeyError):
        catalog.provider("nobody")


def test_what_the_gateway_is_told_has_no_key_and_no_address(file: Path) -> None:
    catalog = Catalog.load(file, {"LOCAL_KEY": SECRET})
    told = [catalog.choices_for(CHAT), catalog.prices_for(CHAT), catalog.prices_for(SUMMARIZE), catalog.limits]
    free = {"input": "0", "output": "0", "context": None}
    assert catalog.limits == {"local": 4}
    assert catalog.prices_for(SUMMARIZE)["extractive"] == {"": free}
    assert catalog.prices_for(CHAT).keys() == {"local"}
    text = json.dumps(told)
    assert SECRET not in text
    assert "127.0.0.1" not in text


def test_a_kind_that_calls_nobody_gets_nobody() -> None:
    quiet = Kind("quiet", 1, {}, Repeat.NEVER, SUMMARIZE.handler, works_with="none")
    assert Catalog.load(None, {"OPENAI_API_KEY": "k"}).default_for(quiet) == (None, None)


MODEL = '[providers.a]\ntype = "openai_chat"\nbase_url = "http://127.0.0.1/v1"\nmodels = ["m"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("providers = 3", "providers: only tables [providers.NAME]"),
        ("[other]", "other: only tables [providers.NAME]"),
        ("[providers]\na = 3", "[providers.a] must be a table"),
        ("not toml", "is not TOML"),
        ('[providers.A]\ntype = "extractive"', "[providers.A] the name takes"),
        ("[providers.a]", "type must be one of anthropic, custom, extractive, openai_chat, openai_responses."),
        ('[providers.a]\ntype = "magic"', "[providers.a] type must be one of anthropic, custom, extractive"),
        ("[providers.a]\ntype = []", "[providers.a] type must be one of"),
        ('[providers.a]\ntype = "extractive"\nmodels = []', "[providers.a] models is not known for type extractive"),
        (MODEL + "base-url = 1", "[providers.a] base-url is not known"),
        (MODEL.replace("http:", "ftp:"), "[providers.a] base_url must be an http or https address"),
        (MODEL.replace('"http://127.0.0.1/v1"', "3"), "[providers.a] base_url must be"),
        (MODEL.replace("127", "u:p@127"), "[providers.a] base_url must be"),
        (MODEL.replace('["m"]', "[]"), "[providers.a] models must be a list"),
        (MODEL.replace('["m"]', "[3]"), "[providers.a] models must be a list"),
        (MODEL + 'api_key_env = "NOT_SET"', "[providers.a] api_key_env names NOT_SET, which is not set"),
        (MODEL + "api_key_env = 3", "[providers.a] api_key_env must be the name"),
        (MODEL + "max_running = 0", "[providers.a] max_running must be a whole number"),
        (MODEL + "max_running = true", "[providers.a] max_running must be"),
        (MODEL + "connect = 0", "[providers.a] connect must be a number, more than 0"),
        (MODEL + "total = nan", "[providers.a] total must be a number"),
        (MODEL + 'silence = "1"', "[providers.a] silence must be a number"),
        (MODEL + "price_input_usd_per_million = 1", "needs the other price"),
        ('[providers.a]\ntype = "extractive"\nwords_per_second = -1', "words_per_second must be a number, 0 or more"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ProvidersFileError) as caught:
        Catalog.load(path, {})
    message = str(caught.value)
    assert says in message
    assert str(path) in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProvidersFileError, match=r"OUTLIVE_PROVIDERS names .*none\.toml: No such file"):
        Catalog.load(tmp_path / "none.toml", {})


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# \xe4\n")
    with pytest.raises(ProvidersFileError, match="not TOML in UTF-8"):
        Catalog.load(path, {})


def test_a_provider_that_is_nobody_s_default_works_for_jobs_that_name_it(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    table = MODEL.replace("[providers.a]", "[providers.{}]")
    path.write_text(table.format("first") + "default = false\n" + table.format("second"), "utf-8")
    catalog = Catalog.load(path, {})
    assert catalog.default_for(CHAT)[0] == "second"
    assert "first" in catalog.choices_for(CHAT)
    path.write_text(table.format("first") + "default = false\n", "utf-8")
    alone = Catalog.load(path, {})
    assert alone.default_for(CHAT) == (None, None)
    assert alone.default_for(SUMMARIZE) == ("extractive", None)


def the_example() -> tuple[str, str]:
    """The file and the table that docs/providers.md shows."""
    section = (ROOT / "docs" / "providers.md").read_text("utf-8").partition("## A provider of your own")[2]
    code, table = (section.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "toml"))
    return code, table


@pytest.mark.anyio
async def test_a_provider_of_one_s_own_as_the_docs_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, table = the_example()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_provider.py").write_text(code, "utf-8")
    (tmp_path / "providers.toml").write_text(table, "utf-8")
    provider = Catalog.load(tmp_path / "providers.toml", {}).provider("mine")
    receipt = Receipt()
    said = [piece.text async for piece in provider.call(None, Prompt(()), receipt)]
    assert (said, receipt.outcome) == (["hello ", "there "], CallOutcome.SUCCEEDED)


@pytest.mark.parametrize(
    ("made_by", "says"),
    [
        ("nothing", "must name a class"),
        ("there_is_no_such_module:X", "there_is_no_such_module"),
        ("missing.py:X", "missing.py"),
        ("pathlib:Path", "pathlib:Path"),
        ("pathlib:Nothing", "Nothing"),
    ],
)
def test_what_is_no_provider_is_refused(tmp_path: Path, made_by: str, says: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(f'[providers.mine]\ntype = "custom"\nclass = "{made_by}"\n', "utf-8")
    with pytest.raises(ProvidersFileError, match=re.escape(says)):
        Catalog.load(path, {})
