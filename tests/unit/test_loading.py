"""A team's own kinds, from a file or a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.handlers.kind import Repeat
from worker.handlers.loading import HandlersError, load_kinds

GREET = """
from worker.handlers.kind import Json, Repeat, RunContext, kind

@kind("greet", version=2, input_schema={"type": "object"}, repeat=Repeat.SAFE, works_with="none", time_limit_s=5)
async def greet(run: RunContext, input: dict[str, Json]) -> Json:
    await run.emit("hello")
    return {"text": "hello"}
"""


def test_a_file_of_kinds(tmp_path: Path) -> None:
    file = tmp_path / "ours.py"
    file.write_text(GREET)
    (greet,) = load_kinds([str(file)])
    assert (greet.name, greet.version, greet.repeat, greet.time_limit_s) == ("greet", 2, Repeat.SAFE, 5)


def test_a_file_may_hold_dataclasses_and_another_have_its_name(tmp_path: Path) -> None:
    """A dataclass under postponed annotations looks its module up by name."""
    postponed = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\nclass A:\n    a: int\n"
    )
    files = [tmp_path / folder / "ours.py" for folder in ("one", "two")]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(postponed + GREET.replace('"greet"', f'"greet{number}"'))
    assert [kind.name for kind in load_kinds(map(str, files))] == ["greet0", "greet1"]


def test_a_module_of_kinds() -> None:
    assert [kind.name for kind in load_kinds(["worker.handlers.summarize"])] == ["summarize"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "defines no kind"),
        (GREET.replace('"greet"', '"Bad Name"'), "no name for a kind"),
        (GREET.replace('{"type": "object"}', "{'type': object}"), "is not JSON"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "ours.py"
    file.write_text(text)
    with pytest.raises(HandlersError, match=says):
        load_kinds([str(file)])


@pytest.mark.parametrize("name", ["no_such_module_of_ours", "no/such/file.py"])
def test_what_is_not_there_is_named(name: str) -> None:
    with pytest.raises(HandlersError, match=r"name a module or a file\.py"):
        load_kinds([name])
