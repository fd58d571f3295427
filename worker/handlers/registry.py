"""The kinds that one worker can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from worker.handlers.analyze import ANALYZE
from worker.handlers.chat import CHAT
from worker.handlers.kind import Kind
from worker.handlers.summarize import SUMMARIZE

BUILT_IN = (SUMMARIZE, CHAT, ANALYZE)


class Registry:
    """Kinds by name; of two with one name the higher version stays, whichever came first."""

    def __init__(self, kinds: Iterable[Kind] = BUILT_IN) -> None:
        self._kinds: dict[str, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Takes a kind in, unless a newer version of it is there."""
        present = self._kinds.get(kind.name)
        if present is None or present.version <= kind.version:
            self._kinds[kind.name] = kind

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def __getitem__(self, name: str) -> Kind:
        """The kind of that name; raises KeyError, which cannot happen for a job this worker claimed."""
        return self._kinds[name]
