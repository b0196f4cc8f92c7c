"""One stream of log lines, ours and the libraries', as JSON or in columns.

The name of an event is a constant in the past tense, its data are fields, and what identifies the
request is bound once at the edge. Contents, prompts, keys and URLs with passwords are never logged.
"""

import logging
import sys
from typing import Final, Literal, TextIO

import structlog
from structlog.typing import Processor

#: Libraries that tell of every small step at `info`.
QUIET_LIBRARIES: Final = ("alembic", "httpx", "uvicorn.error")


def configure_logging(
    *,
    level: Literal["debug", "info", "warning", "error"],
    line_format: Literal["auto", "json", "console"],
    stream: TextIO | None = None,
) -> None:
    """Set up logging for the process; calling it again replaces what was set up.

    Args:
        level: the least that is logged.
        line_format: `auto` is columns on a terminal, else JSON.
        stream: where the lines go; standard output if absent.
    """
    stream = stream or sys.stdout
    is_json = line_format == "json" or (line_format == "auto" and not stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if is_json
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
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
