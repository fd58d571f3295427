"""The process that does an extractive summary: text on stdin, JSON on stdout.

    python -m worker.providers.extract COUNT  < text.txt  > ["paragraph", ...]

A process of its own, because a million characters keep a CPU busy for seconds: in the worker that
would hold the event loop, and with it the leases of all other jobs. Imports the standard library only,
since each call pays for its start. Each string of the answer is one paragraph of the summary.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable
from itertools import groupby

from worker.providers.ranking import choose
from worker.providers.sentences import split

MEMORY_BYTES = 768 * 1024 * 1024  # 1,000,000 ideographs take 330 MiB; far more is a bug of ours
CPU_SECONDS = 60  # behind the caller's own time limit, for the case that the caller is gone
NICENESS = 10  # streams and leases of the same machine go first

_FULL_WIDTH_ENDS = ("\u3002", "\uff01", "\uff1f")


def summarise(text: str, count: int) -> list[str]:
    """At most `count` sentences, those of one paragraph joined; empty only for a blank text."""
    chosen = choose(split(text), count)
    return [
        _joined(sentence.text for sentence in sentences)
        for _, sentences in groupby(chosen, key=lambda sentence: sentence.paragraph)
    ]


def _joined(sentences: Iterable[str]) -> str:
    """With a space between them, except where the script itself has none."""
    spaced = (sentence if sentence.endswith(_FULL_WIDTH_ENDS) else f"{sentence} " for sentence in sentences)
    return "".join(spaced).rstrip(" ")


def main() -> None:
    """Reads all, answers once. UTF-8 both ways."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    text = sys.stdin.buffer.read().decode("utf-8")
    answer = json.dumps(summarise(text, int(sys.argv[1])), ensure_ascii=False)
    sys.stdout.buffer.write(answer.encode())


if __name__ == "__main__":
    main()
