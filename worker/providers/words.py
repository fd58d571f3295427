"""Word lists of the languages most often seen; for all others frequency has to do."""

from pathlib import Path


def _read(name: str) -> frozenset[str]:
    lines = (Path(__file__).with_name("words") / name).read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


STOP_WORDS = _read("stop_words.txt")
"""Words that carry no topic."""

ABBREVIATIONS = _read("abbreviations.txt")
"""Lower-case words after which a full stop ends no sentence."""
