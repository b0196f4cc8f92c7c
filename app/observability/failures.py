"""What a step that failed is worth in the log, where nobody is answered an error."""

from structlog.stdlib import BoundLogger

from app.core.errors import StorageUnavailableError


def step_failed(log: BoundLogger, event: str, error: Exception, **fields: object) -> None:
    """Tell of a step that is left out or tried again by itself.

    That the database is not available is told where it is met, once in an interval
    (`database_unavailable`): what then fails, again and again, adds nothing. Anything else may be a
    bug and comes with its traceback.
    """
    if isinstance(error, StorageUnavailableError):
        log.debug(event, code=error.code, **fields)
    else:
        log.warning(event, exc_info=error, **fields)
