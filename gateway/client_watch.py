"""Work that is worth doing only while the client is there to hear of it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.types import Receive

from schema.errors import OutliveError

T = TypeVar("T")


async def cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    """Wait until the client has left, then cancel `scope`. What it still sends is dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def while_client_stays(receive: Receive, work: Callable[[], Awaitable[T]]) -> T | None:
    """What `work` gives; None where the client left first, and the work was cancelled then.

    Raises what `work` raises of our own errors as they are, outside of the group that the handlers do not look into.
    """
    given: T | None = None
    failure: OutliveError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when_left, receive, tasks.cancel_scope)
        try:
            given = await work()
        except OutliveError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return given
