"""compose.yaml, Dockerfile and .dockerignore name only what the project has; no container engine needed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("compose.yaml", "Dockerfile")


def words(name: str) -> str:
    """The file without its comments."""
    return "\n".join(line for line in (ROOT / name).read_text().splitlines() if not line.lstrip().startswith("#"))


def known_variables() -> set[str]:
    """Every environment variable that a command of ours reads."""
    sources = [
        path for folder in ("gateway", "schema", "worker", "web-demo") for path in (ROOT / folder).rglob("*.py")
    ]
    return {name for path in sources for name in re.findall(r'"(OUTLIVE_[A-Z_]+|DATABASE_URL)"', path.read_text())}


@pytest.mark.parametrize("name", FILES)
def test_every_variable_is_one_that_we_read(name: str) -> None:
    assert set(re.findall(r"\bOUTLIVE_[A-Z_]+|\bDATABASE_URL", words(name))) <= known_variables()


@pytest.mark.parametrize("name", FILES)
def test_every_module_and_script_is_there(name: str) -> None:
    text = words(name)
    modules = re.findall(r"-m[ ,\"]+([a-z_.]+)", text)
    ours = [module for module in modules if module not in {"venv", "compileall"}]
    assert ours
    assert all(importlib.util.find_spec(f"{module}.__main__") for module in ours)
    assert all((ROOT / script).is_file() for script in re.findall(r"[a-z-]+/[a-z_]+\.py", text))


def test_the_image_gets_every_file_that_it_is_made_of() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"requirements.txt", "requirements-dev.txt", "pyproject.toml", "README.md", "LICENSE"} <= sent
    assert {"gateway", "schema", "worker", "web-demo", "docs"} <= sent


def test_a_missing_secret_stops_compose_with_a_sentence() -> None:
    text = words("compose.yaml")
    assert re.search(r"\$\{OUTLIVE_SECRET:\?[^}]*\.env[^}]*\}", text)
    assert re.search(r"\$\{POSTGRES_PASSWORD:\?[^}]*\.env[^}]*\}", text)


def test_a_process_gets_longer_to_stop_than_it_takes() -> None:
    graces = re.findall(r"stop_grace_period: (\d+)s", words("compose.yaml"))
    assert len(graces) == 3
    assert all(int(grace) > 30 for grace in graces)  # OUTLIVE_GRACE_SECONDS


def test_only_this_machine_reaches_the_page() -> None:
    ports = re.findall(r"- (\S+:\d+:\d+)$", words("compose.yaml"), re.MULTILINE)
    assert ports == ["127.0.0.1:8080:8090"]
