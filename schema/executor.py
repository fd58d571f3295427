"""What a statement can be run on: the pool, or one connection inside a transaction."""

from collections.abc import Sequence
from typing import Any, Protocol


class Executor(Protocol):
    """The driver's own names, so that a connection of it is one as it stands."""

    async def fetch(self, statement: str, /, *values: object) -> Sequence[Any]: ...

    async def fetchrow(self, statement: str, /, *values: object) -> Any: ...
