"""The extractive provider: a process of its own, true sentences, a reading pace, and nothing left behind."""

from __future__ import annotations

import random
import time
from contextlib import aclosing
from decimal import Decimal

import anyio
import psutil
import pytest

from tests.support.waiting import until
from worker.providers import extractive
from worker.providers.extractive import Extractive
from worker.providers.provider import CallFailed, CallOutcome, Document, ErrorClass, Piece, Prompt, Receipt
from worker.providers.sentences import split
from worker.providers.settings import ProviderSettings

pytestmark = pytest.mark.anyio

TEXT = (
    "Bees make honey from nectar. They visit many flowers to gather nectar. The weather was nice.\n\n"
    "Honey keeps for years, because bees dry it well. A hive holds sixty thousand bees."
)
FAST = Extractive(ProviderSettings("extractive", "extractive", words_per_second=0))


def prompt(text: str, sentences: int = 7) -> Prompt:
    return Prompt((), document=Document(text, sentences))


async def pieces_of(text: str, sentences: int = 7) -> tuple[list[str], Receipt]:
    receipt = Receipt()
    async with aclosing(FAST.call(None, prompt(text, sentences), receipt)) as pieces:
        return [piece.text async for piece in pieces], receipt


async def test_a_summary_is_sentences_of_the_text_in_its_order() -> None:
    pieces, receipt = await pieces_of(TEXT, 3)
    summary = "".join(pieces)
    chosen = [sentence.text for sentence in split(TEXT) if sentence.text in summary]
    assert len(chosen) == 3
    assert summary.replace("\n\n", " ") == " ".join(chosen)
    assert len(pieces) > 10
    assert receipt.outcome is CallOutcome.SUCCEEDED
    assert (receipt.cost_usd, receipt.input_tokens, receipt.usage_source) == (Decimal(0), None, None)
    assert receipt.first_chunk_at
    assert receipt.sent_at is None, "nothing leaves this machine"


async def test_text_of_five_sentences_comes_back_whole() -> None:
    pieces, _ = await pieces_of(TEXT, 50)
    assert "".join(pieces) == TEXT


def russian() -> str:
    letters = "абвгдежзиклмнопрстуфхцчшщыэюя"
    chance = random.Random(1)
    words = ("".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(200_000))
    return " ".join(f"{word}." if number % 12 == 0 else word for number, word in enumerate(words))


HARD = {
    "a million Cyrillic characters": russian(),
    "a hundred thousand one-word sentences": "Word. " * 100_000,
    "as many different ones": " ".join(f"W{number}." for number in range(100_000)),
    "no space": "x" * 100_000,
    "a million without a space": "ж" * 1_000_000,
    "ideographs": "".join("\u3002" if n % 31 == 0 else chr(0x4E00 + n * 7919 % 20_000) for n in range(1_000_000)),
    "emoji": "😀👍🏽👨‍👩‍👧" * 100_000,
    "dots": "." * 1_000_000,
    "dots and spaces": ". " * 500_000,
    "list marks": "- " * 500_000,
    "accents": "a" + "\u0301" * 999_999,
    "CRLF": "Hello there.\r\n\r\n" * 60_000,
    "NUL": "a\x00b. " * 150_000,
    "U+2028": "A line\u2028another\u2029third\x85" * 40_000,
    "lone surrogates": "a\ud800b. " * 150_000,
}


@pytest.mark.parametrize("name", HARD)
async def test_hard_texts_cost_little(name: str) -> None:
    """Seconds, on a machine that others use too; the quadratic step alone would take minutes or hours."""
    began = time.monotonic()
    pieces, receipt = await pieces_of(HARD[name][:1_000_000])
    assert receipt.outcome is CallOutcome.SUCCEEDED
    assert "".join(pieces).strip()
    assert time.monotonic() - began < 30
    assert max(map(len, pieces)) <= 100 or name == "accents"


async def test_the_loop_stays_free_while_a_hard_text_is_read() -> None:
    longest = 0.0
    async with anyio.create_task_group() as group:

        async def beat() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await anyio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        group.start_soon(beat)
        await pieces_of(HARD["ideographs"])
        group.cancel_scope.cancel()
    assert longest < 1.0


@pytest.mark.parametrize("text", ["", " ", "\n\t \u2028"])
async def test_a_blank_text_is_a_permanent_error(text: str) -> None:
    with pytest.raises(CallFailed) as caught:
        await pieces_of(text)
    receipt = caught.value.receipt
    assert (receipt.outcome, receipt.error_class) == (CallOutcome.FAILED, ErrorClass.PERMANENT)
    assert receipt.code == "empty_text"


async def test_a_conversation_needs_a_model() -> None:
    receipt = Receipt()
    with pytest.raises(CallFailed):
        await anext(FAST.call(None, Prompt(()), receipt))
    assert (receipt.error_class, receipt.code) == (ErrorClass.PERMANENT, "model_required")


async def test_the_pace_is_that_of_reading() -> None:
    provider = Extractive(ProviderSettings("extractive", "extractive", words_per_second=100))
    text = "one two three four five six seven eight nine ten " * 4
    arrived = []
    async with aclosing(provider.call(None, prompt(text), Receipt())) as pieces:
        async for _ in pieces:
            arrived.append(time.monotonic())  # noqa: PERF401 - no: the time of each matters
    assert 35 <= len(arrived) <= 45
    assert arrived[-1] - arrived[0] >= 0.25, "40 words at 100 a second"


async def test_cancelling_kills_the_process() -> None:
    receipt = Receipt()
    async with anyio.create_task_group() as group:

        async def run() -> None:
            async with aclosing(FAST.call(None, prompt(HARD["ideographs"]), receipt)) as pieces:
                await anext(pieces)

        group.start_soon(run)
        child = await until(extractors, what="the process starts")
        group.cancel_scope.cancel()
    assert not any(process.is_running() for process in child)
    assert (receipt.outcome, receipt.cost_usd) == (CallOutcome.CANCELLED, Decimal(0))


async def test_a_killed_process_is_a_transient_error() -> None:
    receipt = Receipt()
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(CallFailed):
                await anext(FAST.call(None, prompt(HARD["ideographs"]), receipt))

        group.start_soon(run)
        for process in await until(extractors, what="the process starts"):
            process.kill()
    assert (receipt.error_class, receipt.code) == (ErrorClass.TRANSIENT, "extract_killed")


async def test_a_process_that_is_late_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extractive, "TIME_LIMIT_S", 0.2)
    with pytest.raises(CallFailed) as caught:
        await pieces_of(HARD["ideographs"])
    assert caught.value.receipt.code == "extract_killed"
    assert not extractors()


async def test_a_closed_iterator_is_a_cancel() -> None:
    receipt = Receipt()
    async with aclosing(FAST.call(None, prompt(TEXT), receipt)) as pieces:
        assert isinstance(await anext(pieces), Piece)
    assert receipt.outcome is CallOutcome.CANCELLED


def extractors() -> list[psutil.Process]:
    """The extraction processes that this test's own process started."""
    children = psutil.Process().children()
    return [child for child in children if "worker.providers.extract" in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
