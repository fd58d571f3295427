"""How our processes write their logs: events with fields, as text for a person or JSON for a machine.

No key, token, input or output text is ever a field; what is logged of an error is its type and our own words.
"""

import logging
import sys
from typing import Literal

import stamina.instrumentation
import structlog

LogFormat = Literal["text", "json"]


def configure_logs(form: LogFormat | None) -> None:
    """Log to standard error; None chooses text on a terminal, else JSON."""
    text = form == "text" or (form is None and sys.stderr.isatty())
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
    )
    # Who retries says so itself, in the words of what it does.
    stamina.instrumentation.set_on_retry_hooks([])
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
