"""The built-in provider that needs no key: it picks sentences of the caller's own text.

No language model is involved and none is claimed: what comes out are sentences of the text, in its
order, chosen by `ranking.py` in a process of its own and then streamed word by word at a reading pace.
It costs nothing, reports no tokens, and sends nothing anywhere: `sent_at` stays empty, so a run that is
lost in the middle left nothing behind that somebody else might still be working on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from decimal import Decimal
from pathlib import Path

import anyio
from anyio.abc import Process

from schema.text import clean_text
from worker.providers.provider import (
    FREE,
    CallOutcome,
    Document,
    ErrorClass,
    Piece,
    Prompt,
    Receipt,
    TokenPrice,
)
from worker.providers.settings import ProviderSettings

TIME_LIMIT_S = 60.0  # the hardest 1,000,000 characters take about 3 s alone; sixteen at once on two cores, 30
REAP_S = 5.0  # how long to wait for a killed process, which the kernel ends at once unless the disk hangs
PARAGRAPH_BREAK = "\n\n"

_PROJECT = Path(__file__).resolve().parents[2]
# A word with its white space; ideographs in twos, since a "word" of them may be a whole paragraph.
_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}\\s*|[^\\s\u3040-\u30ff\u3400-\u9fff]{1,24}\\s*|\\s+")
_USUAL_WORD_CHARS = 6.0  # with its space, over English, German and Russian prose
_PAUSE_WORDS = 3.0  # after a sentence


class Extractive:
    """A provider of type `extractive`; see docs/providers.md."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings
        # More processes than cores would only make every one of them later.
        self._slots = anyio.CapacityLimiter(os.cpu_count() or 1)

    @property
    def name(self) -> str:
        return self._settings.name

    def price(self, model: str | None) -> TokenPrice:
        """Nothing: it runs here."""
        return FREE

    async def call(self, model: str | None, prompt: Prompt, receipt: Receipt) -> AsyncGenerator[Piece]:
        """One extraction, see `Provider.call`; `model` means nothing here."""
        receipt.price(Decimal(0), "local")
        try:
            words = _words(await self._paragraphs(prompt.document, receipt))
            due = anyio.current_time()
            for word in words:
                receipt.mark_first_chunk()
                yield Piece(word)
                due += self._pause_s(word)
                await anyio.sleep_until(due)
            receipt.outcome = CallOutcome.SUCCEEDED
        finally:
            receipt.abandon()

    async def _paragraphs(self, document: Document | None, receipt: Receipt) -> list[str]:
        if document is None:
            raise receipt.fail(ErrorClass.PERMANENT, "model_required")
        if not document.text.strip():
            raise receipt.fail(ErrorClass.PERMANENT, "empty_text")
        async with self._slots:
            return await _extract(document, receipt)

    def _pause_s(self, word: str) -> float:
        """Long words take longer, sentences end with a rest, as in reading aloud."""
        if not self._settings.words_per_second:
            return 0.0
        share = 0.5 + 0.5 * len(word) / _USUAL_WORD_CHARS
        rest = _PAUSE_WORDS if word.rstrip().endswith((".", "!", "?", "\u3002")) else 0.0
        return (share + rest) / self._settings.words_per_second


def _words(paragraphs: Iterable[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield PARAGRAPH_BREAK
        yield from _WORD.findall(paragraph)


async def _extract(document: Document, receipt: Receipt) -> list[str]:
    """The chosen paragraphs. Raises `CallFailed`: a process that died or is late may do better next time."""
    output = b""
    process = await _start(document.sentences)
    try:
        with anyio.move_on_after(TIME_LIMIT_S):
            output = await _converse(process, clean_text(document.text).encode())
            await process.wait()
    finally:
        await _end(process)
    if process.returncode != 0:
        raise receipt.fail(ErrorClass.TRANSIENT, "extract_killed")
    return _checked(output, receipt)


def _checked(output: bytes, receipt: Receipt) -> list[str]:
    paragraphs = json.loads(output)
    if not paragraphs:
        # Only signs that Unicode counts as white space and `str.strip` does not.
        raise receipt.fail(ErrorClass.PERMANENT, "empty_text")
    return [str(paragraph) for paragraph in paragraphs]


async def _start(sentences: int) -> Process:
    # Its own small environment: no key of the worker's is in it. -S and -P: no site packages, no current
    # directory, so it starts in 30 ms and finds this project only.
    command = [sys.executable, "-S", "-P", "-m", "worker.providers.extract", str(sentences)]
    return await anyio.open_process(
        command, stderr=subprocess.DEVNULL, env={"PYTHONPATH": str(_PROJECT), "PYTHONUTF8": "1"}
    )


async def _converse(process: Process, text: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send(text)
        await process.stdin.aclose()
    except anyio.BrokenResourceError:
        return b""  # it died before it had read all; its exit status says the rest
    return b"".join([part async for part in process.stdout])


async def _end(process: Process) -> None:
    """Whatever happened, no process is left behind."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(REAP_S):
        if process.returncode is None:
            process.kill()
        await process.wait()
        await process.aclose()
