"""The words of a scripted answer, always the same for the same request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice

from scripted_provider.behaviour import Behaviour

_SENTENCES = (
    "This answer follows a script, and no model has thought about it.",
    "Its pieces come at a steady pace, so that one can see what becomes of them.",
    "What is written to the log stays, whoever breaks off.",
    "Accents like é, signs like € and faces like 🙂 take several bytes each.",
)


def pieces_of(behaviour: Behaviour) -> Iterator[str]:
    """As many as it wants, a word or so each."""
    words = behaviour.words.split() if behaviour.words else [word for each in _SENTENCES for word in each.split()]
    yield from islice((f"{word} " for word in cycle(words)), behaviour.pieces)


def stamp() -> str:
    """The moment, by a clock that all processes of a machine share: `t<nanoseconds># word `."""
    return f"t{time.monotonic_ns()}# word "


def text_of(behaviour: Behaviour) -> str:
    """The whole answer."""
    return "".join(pieces_of(behaviour))
