"""Driver errors to storage errors: the one place that knows what asyncpg and SQLAlchemy raise.

    cannot connect, no such database, no schema, not allowed,        StorageUnavailableError
    pool exhausted, server going down, timeout, deadlock,            (retryable)
    serialization failure, disk or connections used up
    of these: login or statement not allowed                         StorageForbiddenError
    of these: a lock was not to be had within its time               LockTimeoutError
    a named constraint refused a row                                 ConstraintViolatedError
    anything else the database says                                  StorageError

The translated message never holds SQL, parameters or a connection string; the cause is kept for the
log's traceback. Why the database is not available is logged here, once in an interval for each
cause: whoever is answered 503, and whoever tries again later, need not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg
import structlog
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi

from app.core.errors import (
    LockTimeoutError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
)
from app.observability.repeats import Repeats

# https://www.postgresql.org/docs/18/errcodes-appendix.html (2026-11-29)
UNAVAILABLE_CLASSES: Final = (
    "08",  # connection exception
    "53",  # insufficient resources: disk full, out of memory, too many connections
    "57P",  # operator intervention: shutting down, crashed, cannot connect now
    "58",  # system error outside Postgres
)
UNAVAILABLE_STATES: Final = frozenset(
    {
        "25006",  # read-only transaction: the server became a standby under us
        "3D000",  # no such database
        # What the schema of this release has and the one that is there lacks: not migrated yet.
        "42P01",
        "42703",
        "42883",
        "25P03",  # idle in transaction for too long; the session is gone
        "40001",  # serialization failure, also a conflict with recovery on a standby
        "40P01",  # deadlock
        "57014",  # cancelled, which is how statement_timeout ends a statement
    }
)
#: The login is refused, also by pg_hba.conf; and a right that nobody has given yet.
FORBIDDEN: Final = ("28", "42501")
#: What the driver says itself. The second is of a connection that broke between two steps of a
#: statement, and of hosts of which none takes writes: while a standby takes over.
_DRIVERS_OWN: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
# Lock not available within lock_timeout.
LOCK_TIMEOUT_STATE: Final = "55P03"
CONSTRAINT_CLASS: Final = "23"


#: Of what was said, so much is told.
MAX_CAUSE_CHARACTERS: Final = 300

log = structlog.get_logger(__name__)

#: A process has one log, and says things once in it.
_TOLD: Final = Repeats()


class ConstraintViolatedError(StorageError):
    """A constraint refused a row."""

    def __init__(self, *, constraint: str, cause: str = "") -> None:
        super().__init__(f"the constraint {constraint} refused a row", cause=cause)
        #: Name of the constraint, as in the schema; empty when the database gave none.
        self.constraint = constraint


@contextmanager
def storage_errors() -> Iterator[None]:
    """Translate what the block's database calls raise; the block does nothing else that may fail.

    Raises:
        StorageUnavailableError: not reachable, not in time, or lost a race; trying again may help.
            After a commit was sent, whether it happened is unknown.
        StorageForbiddenError: of those, when the role may not.
        LockTimeoutError: of those, when another held a lock for too long.
        ConstraintViolatedError: a constraint refused a row.
        StorageError: any other refusal.
    """
    try:
        yield
    except exc.DBAPIError as error:
        raise _translated(_driver_error(error), lost=error.connection_invalidated) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise _translated(error, lost=False) from error
    except (TimeoutError, exc.TimeoutError, OSError) as error:
        raise _unavailable(error) from error


@contextmanager
def checkout_errors() -> Iterator[None]:
    """Translate what only taking a connection of the pool raises.

    Raises:
        StorageUnavailableError: there is no connection. Whatever Postgres says while it lets
            nobody in, it is no answer to a statement. Also when connections are closed again as
            soon as they are made: SQLAlchemy tries twice, and then raises what it also says of its
            wrong use.
    """
    try:
        yield
    except (
        exc.InvalidRequestError,
        asyncpg.PostgresError,
        AsyncAdapt_asyncpg_dbapi.Error,
    ) as error:
        driver_error = error if isinstance(error, asyncpg.PostgresError) else error.__cause__
        raise _unavailable(driver_error or error) from error


def _driver_error(error: exc.DBAPIError) -> BaseException | None:
    # SQLAlchemy wraps asyncpg's error in its own DBAPI class, and that one in DBAPIError.
    return error.orig.__cause__ if error.orig is not None else None


def _translated(error: BaseException | None, *, lost: bool) -> StorageError:
    # asyncpg's own refusals (a closed connection, another operation in progress, no server that
    # takes writes) carry no state; those of a broken connection are what is met in practice.
    if lost or isinstance(error, _DRIVERS_OWN):
        return _unavailable(error)
    sqlstate = _sqlstate(error)
    if sqlstate == LOCK_TIMEOUT_STATE or sqlstate.startswith(FORBIDDEN):
        return _unavailable(error)
    if sqlstate in UNAVAILABLE_STATES or sqlstate.startswith(UNAVAILABLE_CLASSES):
        return _unavailable(error)
    if sqlstate.startswith(CONSTRAINT_CLASS):
        constraint = getattr(error, "constraint_name", None) or ""
        return ConstraintViolatedError(constraint=constraint, cause=_cause(error))
    return StorageError(cause=_cause(error))


def _unavailable(error: BaseException | None) -> StorageUnavailableError:
    """Return the error, after its cause is logged if it is time for that."""
    name, sqlstate = type(error).__name__, _sqlstate(error)
    times = _TOLD.count((name, sqlstate))
    if times:
        log.warning(
            "database_unavailable",
            error=name,
            sqlstate=sqlstate,
            cause=_message(error),
            times=times,
        )
    if sqlstate == LOCK_TIMEOUT_STATE:
        return LockTimeoutError(cause=_cause(error))
    if sqlstate.startswith(FORBIDDEN):
        return StorageForbiddenError(cause=_cause(error))
    return StorageUnavailableError(cause=_cause(error))


def _sqlstate(error: BaseException | None) -> str:
    return getattr(error, "sqlstate", None) or ""


def _cause(error: BaseException | None) -> str:
    """Return what went wrong, for people: what was said, and what to look it up by."""
    names = [type(error).__name__, _sqlstate(error)]
    return f"{_message(error)} ({', '.join(name for name in names if name)})"


def _message(error: BaseException | None) -> str:
    """Return what was said in one line. Details and hints, which may quote rows, are no part."""
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it takes no writes"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    if error is None:
        return "the connection broke"
    if isinstance(error, asyncpg.PostgresError) and error.args:
        said = str(error.args[0])
    else:
        # SQLAlchemy adds where to read more.
        said = str(error).partition(" (Background on this error")[0]
    return " ".join(said.split())[:MAX_CAUSE_CHARACTERS]
