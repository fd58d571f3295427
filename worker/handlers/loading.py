"""`--handlers`: a team's own kinds, from a module or a file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import orjson

from worker.handlers.kind import Kind

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class HandlersError(Exception):
    """What `--handlers` names cannot be used; the text says what to change."""


def load_kinds(names: Iterable[str]) -> list[Kind]:
    """The kinds of all these modules or files, in their order. Raises HandlersError."""
    return [kind for name in names for kind in _kinds_of(name)]


def _kinds_of(name: str) -> list[Kind]:
    module = _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
    kinds = [value for value in vars(module).values() if isinstance(value, Kind)]
    if not kinds:
        raise HandlersError(f"{name} defines no kind; put @kind(...) over an async function in it")
    for kind in kinds:
        _check(name, kind)
    return kinds


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise HandlersError(f"--handlers {name}: no module named {error.name}; name a module or a file.py") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise HandlersError(f"--handlers {path}: there is no such file; name a module or a file.py")
    # Two files of one name are two modules; and dataclasses look their module up by its name.
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"outlive_handlers_{path.stem}_{unique}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check(name: str, kind: Kind) -> None:
    if not _NAME.fullmatch(kind.name):
        raise HandlersError(f"{name}: {kind.name!r} is no name for a kind; use a-z, 0-9, '-' and '_', first a letter")
    try:
        orjson.dumps(kind.input_schema)
    except TypeError as error:
        raise HandlersError(f"{name}: the input schema of {kind.name} is not JSON ({error})") from error
