"""For `python -m worker --handlers`: a kind that calls no provider and emits nothing."""

from tests.bench.queues.contender import KIND
from tests.bench.queues.starts import Starts
from worker.handlers.kind import Json, Repeat, RunContext, kind

starts = Starts()


@kind(KIND, input_schema={"type": "object"}, repeat=Repeat.SAFE, works_with="none")
async def noop(_: RunContext, input: dict[str, Json]) -> Json:
    """Begins, and has ended."""
    starts.note(int(str(input["number"])))
    return None
