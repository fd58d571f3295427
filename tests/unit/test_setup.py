"""The Makefile and setup/install, as far as they go without installing anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a space in its name and no .venv."""
    path = tmp_path / "a checkout"
    (path / "setup").mkdir(parents=True)
    for name in ("Makefile", "setup/install", *LOCKS):
        shutil.copy(ROOT / name, path / name)
    return path


def run(checkout: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))
    }
    return subprocess.run(
        command, cwd=checkout, env=inherited | environment, capture_output=True, text=True, check=False, timeout=30
    )


def test_make_alone_lists_what_there_is(checkout: Path) -> None:
    said = run(checkout, "make").stdout
    assert re.findall(r"^make ([\w-]+)", said, re.MULTILINE) == ["demo", "demo-llm", "test", "lint", "bench", "lock"]


def test_a_python_that_is_none_is_refused_in_a_sentence(checkout: Path) -> None:
    done = run(checkout, "make", "demo", PYTHON="/bin/false")
    assert done.returncode != 0
    assert "PYTHON=/bin/false is no Python 3.11 or newer" in done.stderr
    assert not (checkout / ".venv").exists()


def test_no_python_at_all_is_said_in_a_sentence(checkout: Path) -> None:
    programs = checkout / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "flock", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    # A shim that runs nothing is no Python either.
    (programs / "python3.13").write_text("#!/bin/sh\nexit 127\n")
    (programs / "python3.13").chmod(0o755)
    done = run(checkout, str(checkout / "setup/install"), "requirements.txt", ".venv/demo", PATH=str(programs))
    assert done.returncode != 0
    assert "No Python 3.11 or newer was found" in done.stderr


def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (checkout / ".venv/demo").touch()
    assert run(checkout, "make", "-q", ".venv/demo").returncode == 0
    (checkout / ".venv/unfinished").touch()
    assert run(checkout, "make", "-q", ".venv/demo").returncode == 1


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_has_hashes_and_no_addresses(name: str) -> None:
    text = (ROOT / name).read_text()
    pinned = re.findall(r"^[\w.-]+==[^\\]+\\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^\w", text, re.MULTILINE)) > 20
    assert "://" not in text
    assert "--index" not in text


def test_the_tests_lock_holds_all_that_the_demo_runs_on() -> None:
    demo, tests = (set(re.findall(r"^[\w.-]+==[\w.]+", (ROOT / name).read_text(), re.MULTILINE)) for name in LOCKS)
    assert demo <= tests


def test_pip_comes_with_its_licence() -> None:
    (wheel,) = (ROOT / "setup").glob("pip-*.whl")
    version = wheel.name.split("-")[1]
    assert (
        (ROOT / f"setup/pip-{version}.LICENSE.txt")
        .read_text()
        .startswith("Copyright (c) 2008-present The pip developers")
    )
