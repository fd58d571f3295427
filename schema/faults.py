"""What ends a request or a process, said so that somebody can act on it and without anybody's content."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import structlog

from schema.errors import OutliveError

# Enough to find the place.
MOST_CALLS = 8
_ROOT = f"{Path(__file__).resolve().parent.parent}/"
_OURS = tuple(f"{_ROOT}{package}/" for package in ("gateway", "schema", "worker"))

log = structlog.get_logger()


def log_fault(event: str, error: BaseException) -> None:
    """Log where an error came from and what it is called; its text may hold what a user wrote."""
    log.error(event, error=type(error).__qualname__, calls=_calls(error))
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            log_fault(event, each)


def _calls(error: BaseException) -> list[str]:
    """Where it was raised, then our own calls that led there, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    shown = [*frames[:1], *(frame for frame in ours if frame is not frames[0])]
    return [f"{frame.filename.removeprefix(_ROOT)}:{frame.lineno} {frame.name}" for frame in shown[:MOST_CALLS]]


@contextmanager
def explained(*ours: type[Exception]) -> Iterator[None]:
    """For the whole life of a process: an error that says what to do becomes one sentence and exit code 1; of any
    other the log has the place."""
    try:
        yield
    except click.ClickException:
        raise
    except (Exception, BaseExceptionGroup) as error:
        wanted: tuple[type[BaseException], ...] = (OutliveError, *ours)
        known, others = BaseExceptionGroup[BaseException]("", [error]).split(wanted)
        if known is not None and others is None:
            raise click.ClickException(_first_sentence(known)) from error
        log_fault("process failed", error)
        sys.exit(1)


def _first_sentence(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
