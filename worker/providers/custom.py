"""A team's own provider: a class in a module or a file, named in the providers file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from worker.providers.provider import Provider
from worker.providers.settings import ProviderSettings, ProvidersFileError


def build_custom(settings: ProviderSettings) -> Provider:
    """The class that the table names, made with the table's settings. Raises ProvidersFileError."""
    place, _, name = settings.made_by.rpartition(":")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        made = getattr(module, name)(settings)
    except (ImportError, AttributeError, TypeError, FileNotFoundError) as error:
        raise ProvidersFileError(
            f"[providers.{settings.name}] class {settings.made_by}: {type(error).__name__}: {error}; "
            "name a class that takes the table's settings, as in my_provider.py:MyProvider."
        ) from error
    if not all(callable(getattr(made, wanted, None)) for wanted in ("call", "price")) or made.name != settings.name:
        raise ProvidersFileError(
            f"[providers.{settings.name}] class {settings.made_by} is no provider; it needs call, price, and the "
            "table's name as its name: worker/providers/provider.py says how."
        )
    provider: Provider = made
    return provider


def _from_file(path: Path) -> ModuleType:
    # Two files of one name are two modules; and dataclasses look their module up by its name.
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"outlive_provider_{path.stem}_{unique}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
