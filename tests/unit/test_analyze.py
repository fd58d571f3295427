"""How a document is taken apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.handlers.analyze import MOST_SECTIONS, split


def test_at_headings_where_there_are_some() -> None:
    sections = split("Before.\n\n# One\nA.\n\n## Two ##\nB.\n")
    assert [section.title for section in sections] == ["Part 1", "One", "Two ##"]
    assert [section.text for section in sections] == ["Before.\n\n", "# One\nA.\n\n", "## Two ##\nB.\n"]


def test_else_at_blank_lines() -> None:
    assert [section.text for section in split("A.\nB.\n\nC.\n \t\n\nD.")] == ["A.\nB.", "C.", "\nD."]


def test_many_parts_are_put_together_in_order() -> None:
    sections = split("\n\n".join(f"Paragraph {n}." for n in range(100)))
    assert len(sections) <= MOST_SECTIONS
    assert "\n\n".join(section.text for section in sections) == "\n\n".join(f"Paragraph {n}." for n in range(100))


@given(st.text(st.sampled_from("ab#\n \t."), min_size=1, max_size=300))
def test_nothing_is_lost_and_no_section_is_empty(text: str) -> None:
    sections = split(text)
    assert 1 <= len(sections) <= MOST_SECTIONS
    kept = "".join(section.text for section in sections)
    assert [c for c in kept if not c.isspace()] == [c for c in text if not c.isspace()]
    assert all(section.text.strip() for section in sections) or not text.strip()
