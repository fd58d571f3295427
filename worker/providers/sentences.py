"""Cuts a text into sentences, in time linear in its length; standard library only.

    text -> blocks (blank lines) -> lines or wrapped paragraphs -> sentences -> fragments if too long

A sentence is a piece of the text itself: its characters and order stay, only runs of white space
become one space, and a list, quote or heading mark at its start is left off.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from worker.providers.words import ABBREVIATIONS

MAX_SENTENCE_CHARS = 600  # longer ones are no summary; without a space, this is also what bounds a "word"
MIN_CUT_CHARS = 300  # a cut looks for a comma or space behind this point
WRAP_COLUMN = 160  # a block with a longer line was not wrapped by hand, so each of its lines is a paragraph


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence; `paragraph` counts from 0, `opens` marks the first of a paragraph.

    `prose` is false for headings, table rows, code and fragments without an end: they make poor
    summaries and are used last.
    """

    text: str
    paragraph: int
    opens: bool
    prose: bool


_NEWLINES = re.compile("\r\n|[\r\v\f\x85\u2028]")
_BLOCK_END = re.compile("\n[ \t]*\n|\u2029")
_MARK = re.compile(r"[ \t]{0,32}(?:(?:[-*+\u2022>]|\d{1,3}[.)]|#{1,6})[ \t]+)+")
_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)")
# No look-ahead and nothing optional before the terminator: a million dots must stay linear.
_END = re.compile(
    "([.!?\u2026\u203c-\u2049\uff0e\uff61]+|[\u3002\uff01\uff1f\u0964\u0965\u061f\u06d4\u1362\u104b\ufe12]+)[\"'\u00bb\u201d\u2019\u201c)\\]}\u300d\u300f\u3011\uff09]*"
)
_UNSPACED = frozenset("\u3002\uff01\uff1f\uff61\u0964\u0965\u061f\u06d4\u1362\u104b\ufe12")
_CLAUSE_END = re.compile("[,;:\uff0c\uff1b\u3001\u2014] ?")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*\Z")
_SHORT_NUMBER = re.compile(r"(?<!\d)(?<!\d[.,])\d{1,2}\Z")

_AFTER_ORDINAL = re.compile(
    "(?:januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember|jahrhundert|"
    "januars|quartal|klasse|auflage|kapitel)",
    re.IGNORECASE,
)


def split(text: str) -> list[Sentence]:
    """All sentences in document order; empty only for a text of white space."""
    found: list[Sentence] = []
    for number, (paragraph, prose) in enumerate(_paragraphs(_NEWLINES.sub("\n", text))):
        opens = True
        for sentence, ended in _sentences(paragraph):
            for part in _fragments(sentence):
                found.append(Sentence(part, number, opens, prose and ended and part == sentence))
                opens = False
    return found


def _paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Paragraphs without their mark, white space normalised, and whether they are prose."""
    fenced = False
    for block in _BLOCK_END.split(text):
        kept: list[str] = []
        lines = block.split("\n")
        unwrapped = any(len(line) > WRAP_COLUMN for line in lines)
        for line in lines:
            fence = _FENCE.match(line) is not None
            mark = _MARK.match(line)
            if kept and (fence or fenced or mark or unwrapped or _stands_alone(line, kept[-1])):
                yield from _paragraph(kept, fenced)
                kept = []
            kept.append(line)
            fenced ^= fence
        yield from _paragraph(kept, fenced)


def _paragraph(lines: list[str], fenced: bool) -> Iterator[tuple[str, bool]]:
    mark = _MARK.match(lines[0])
    heading = mark is not None and "#" in mark.group()
    first = lines[0][mark.end() :] if mark else lines[0]
    text = " ".join(" ".join([first, *lines[1:]]).split()) or " ".join(lines[0].split())
    if text:
        code = fenced or _FENCE.match(lines[0]) is not None
        yield text, not (heading or code or text.startswith(("|", "<", "[!")))


def _stands_alone(line: str, before: str) -> bool:
    """A table row, or anything after a heading, does not continue the line before it."""
    return line.lstrip().startswith("|") or before.lstrip().startswith("#")


def _sentences(paragraph: str) -> Iterator[tuple[str, bool]]:
    """Sentences of one paragraph, and whether each has an end of its own."""
    start = 0
    for end in _END.finditer(paragraph):
        if _is_end(paragraph, start, end):
            sentence = paragraph[start : end.end()].strip()
            if sentence:
                yield sentence, True
            start = end.end()
    rest = paragraph[start:].strip()
    if rest:
        yield rest, False


def _is_end(paragraph: str, start: int, end: re.Match[str]) -> bool:
    after = end.end()
    if after == len(paragraph) or end.group(1)[-1] in _UNSPACED:
        return True
    if paragraph[after] != " ":
        return False
    following = paragraph[after + 1 : after + 2]
    if following.islower():
        return False  # "e.g. this", or: "Really?" she asked
    return end.group(1) != "." or not _abbreviated(paragraph, start, end.start(), after + 1)


def _abbreviated(paragraph: str, start: int, dot: int, following: int) -> bool:
    """Whether the single dot at `dot` belongs to its word: an initial, an abbreviation, a German ordinal."""
    before = paragraph[max(start, dot - 16) : dot]
    word = _LAST_WORD.search(before)
    if word is not None:
        letters = word.group()
        return letters.lower() in ABBREVIATIONS or (len(letters) == 1 and letters.isupper())
    ordinal = _SHORT_NUMBER.search(before)
    return ordinal is not None and _AFTER_ORDINAL.match(paragraph, following) is not None


def _fragments(sentence: str) -> Iterator[str]:
    """The sentence, or if it is too long its parts: cut at a clause, else a space, else where it must."""
    start = 0
    while len(sentence) - start > MAX_SENTENCE_CHARS:
        cut = _cut(sentence, start)
        part = sentence[start:cut].strip()
        if part:
            yield part
        start = cut
    rest = sentence[start:].strip()
    if rest:
        yield rest


def _cut(sentence: str, start: int) -> int:
    least, most = start + MIN_CUT_CHARS, start + MAX_SENTENCE_CHARS
    clauses = [clause.end() for clause in _CLAUSE_END.finditer(sentence, least, most)]
    if clauses:
        return clauses[-1]
    space = sentence.rfind(" ", least, most)
    if space > 0:
        return space + 1
    while most > least and _joins(sentence[most]):
        most -= 1
    return most if most > least else start + MAX_SENTENCE_CHARS


def _joins(char: str) -> bool:
    """Whether a character belongs to the one before it: accents, variation selectors, joined emoji."""
    return char == "\u200d" or unicodedata.category(char).startswith("M") or "\U0001f3fb" <= char <= "\U0001f3ff"
