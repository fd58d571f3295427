"""Where a text is cut into sentences, in several scripts, and what is never done to it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.providers.extract import summarise
from worker.providers.ranking import choose
from worker.providers.sentences import MAX_SENTENCE_CHARS, split

ENGLISH = """# Tides

Tides are caused by the Moon, and to a smaller part by the Sun. The Moon pulls the water of the oceans
towards itself. Dr. A. B. Lee measured it, e.g. in Fig. 3 of her report! "Is that all?" she asked. No.

- A spring tide happens at new and full moon
- A neap tide happens at half moon.

```
tide = moon + sun
```

| Moon | Tide |
| --- | --- |
"""


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in split(text)]


def normal(text: str) -> str:
    return " ".join(text.split())


def test_english_prose_and_markdown() -> None:
    assert texts(ENGLISH) == [
        "Tides",
        "Tides are caused by the Moon, and to a smaller part by the Sun.",
        "The Moon pulls the water of the oceans towards itself.",
        "Dr. A. B. Lee measured it, e.g. in Fig. 3 of her report!",
        '"Is that all?" she asked.',
        "No.",
        "A spring tide happens at new and full moon",
        "A neap tide happens at half moon.",
        "```",
        "tide = moon + sun",
        "```",
        "| Moon | Tide |",
        "| --- | --- |",
    ]
    poor = {sentence.text for sentence in split(ENGLISH) if not sentence.prose}
    assert "Tides" in poor
    assert "tide = moon + sun" in poor
    assert "| Moon | Tide |" in poor


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Am 3. Oktober war es kalt. Gestern, d.h. am 2., nicht.", 2),
        ("Im 19. Jahrhundert fuhr man z.B. mit dem Rad. Dr. Meyer nicht!", 2),
        ("Это, т.е. то, верно. А. С. Пушкин писал стихи. Да?", 3),  # noqa: RUF001 - Russian
        ("长城很长。今天有很多人！你去过吗？去过", 4),  # noqa: RUF001 - Chinese
        ("यह पहला है। यह दूसरा है।", 2),
        ("هل هذا صحيح؟ نعم.", 2),
        ("See example.com or v3.14 today. Then rest.", 2),
        ("Wait... what?! Yes… no.", 2),
        ("One line\u2028and the next.\u2029A paragraph\x85and more.", 2),
        ("Hello there.\r\n\r\nBye.\rEnd.", 3),
    ],
)
def test_where_sentences_end(text: str, sentences: int) -> None:
    assert len(texts(text)) == sentences


@pytest.mark.parametrize("text", ["- ", "# ", "```", "|", "\ufffd", "\u200b", "😀", ".", "1.", "...", "-"])
def test_nothing_is_too_little(text: str) -> None:
    assert "".join(texts(text))


def test_a_word_without_end_is_cut() -> None:
    parts = texts("ж" * 100_000)
    assert "".join(parts) == "ж" * 100_000
    assert max(map(len, parts)) <= MAX_SENTENCE_CHARS


def test_long_sentences_are_cut_at_clauses() -> None:
    parts = texts("some more words, " * 200)
    assert all(part.endswith(",") for part in parts)
    assert normal(" ".join(parts)) == normal("some more words, " * 200)


def test_a_cut_keeps_accents_with_their_letter() -> None:
    assert not any(part.startswith("\u0301") for part in texts("e\u0301" * 1000))


PROSE = st.lists(
    st.text(st.sampled_from("ab Z.!?…。\n\r\t\u2028\u2029,;-#|`>1é😀\u0301\u200dж長\ufffd"), max_size=30),
    max_size=20,
).map("".join)


@given(text=PROSE | st.text(max_size=200))
def test_every_sentence_is_a_piece_of_the_text_in_its_order(text: str) -> None:
    squeezed = re.sub(r"\s+", "", text)
    position = 0
    for sentence in texts(text):
        wanted = re.sub(r"\s+", "", sentence)
        assert wanted
        position = squeezed.find(wanted, position)
        assert position >= 0
        position += len(wanted)


@given(text=PROSE, count=st.integers(1, 5))
def test_a_choice_is_of_the_sentences_in_order_and_never_empty(text: str, count: int) -> None:
    sentences = split(text)
    chosen = choose(sentences, count)
    assert len(chosen) <= count
    assert bool(chosen) == bool(text.strip())
    places = [sentences.index(sentence) for sentence in chosen]
    assert places == sorted(places)
    assert len({sentence.text for sentence in chosen}) == len(chosen)


def test_the_topic_wins_over_the_aside() -> None:
    text = (
        "Bees make honey from the nectar of flowers. The weather was nice on Tuesday. "
        "Bees visit many flowers to gather nectar for honey. My uncle owns a red car. "
        "Honey keeps for years, because bees dry the nectar well. Nobody knows the score."
    )
    summary = summarise(text, 3)[0]
    assert summary.count("nectar") == 3


def test_the_second_choice_does_not_repeat_the_first() -> None:
    text = (
        "The bridge over the river was closed for repairs. The bridge over the river was closed for repair. "
        "The repairs of the bridge will cost two million. The river flooded the town last winter. "
        "The town paid for the bridge over the river."
    )
    assert summarise(text, 2)[0].count("was closed") == 1


def test_a_repeated_sentence_is_said_once() -> None:
    assert summarise("Word. " * 1000, 7) == ["Word."]


def test_paragraphs_stay_apart_and_ideographs_together() -> None:
    assert summarise("One is here. Two is here.\n\nThree is here.", 5) == [
        "One is here. Two is here.",
        "Three is here.",
    ]
    assert summarise("长城很长。今天很好！", 5) == ["长城很长。今天很好！"]  # noqa: RUF001 - Chinese
