"""One stream of log lines on standard output, ours and the libraries', as JSON or in columns.

The name of an event is a constant in the past tense, its data are fields, and what identifies the
request is bound once at the edge. Contents, prompts, keys and URLs with passwords are never logged.
"""

import logging
import sys
from typing import Final, Literal

import structlog
from structlog.typing import Processor

#: Libraries that tell of every small step at `info`.
QUIET_LIBRARIES: Final = ("alembic", "httpx", "uvicorn.error")


def configure_logging(
    *,
    level: Literal["debug", "info", "warning", "error"],
    line_format: Literal["auto", "json", "console"],
) -> None:
    """Set up logging for the process; calling it again replaces what was set up."""
    is_json = line_format == "json" or (line_format == "auto" and not sys.stdout.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if is_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
