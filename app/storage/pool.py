"""The connection pool: SQLAlchemy's async engine on asyncpg, one per process.

asyncpg parses the URL itself, so every form that libpq knows works (several hosts, `sslmode`, a
socket folder in `host`), and the engine's own URL, which ends up in messages, holds no password.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, TypeAlias
from uuid import uuid4

import asyncpg
from asyncpg.connect_utils import SessionAttribute
from sqlalchemy import NullPool, QueuePool, event, exc
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

# Execution options of the engine. With what a transaction begins, where everything has to be one.
BEGIN_OPTION: Final = "foldline_begin"
# Who is told how long connections and statements take.
OBSERVER_OPTION: Final = "foldline_observer"
#: What the connections are for: `rw`, or `ro` on a replica.
POOL_OPTION: Final = "foldline_pool"
PoolName: TypeAlias = Literal["rw", "ro"]
CONNECT_TIMEOUT_S: Final = 5.0
# How long a request waits for a connection of the pool; beyond it, an early 503 serves better.
POOL_TIMEOUT_S: Final = 5.0
STATEMENT_TIMEOUT_S: Final = 5.0
# Postgres ends a statement itself; one that has still not answered this much later never will. Of a
# disk or a network that hangs nothing else tells.
ANSWER_GRACE_S: Final = 3.0
# A transaction that waits for us this long has been forgotten, and holds locks.
IDLE_IN_TRANSACTION_TIMEOUT_S: Final = 10.0


class DatabaseObserver(Protocol):
    """Is told how long the database takes. Costs microseconds and never raises."""

    def pool_waited(self, pool: str, wait_s: float) -> None:
        """Take how long a connection was waited for."""

    def query_ran(self, sql: str, *, duration_s: float) -> None:
        """Take a statement that ran, however it ended."""


def observed(
    engine: AsyncEngine, observer: DatabaseObserver, *, pool: PoolName = "rw"
) -> AsyncEngine:
    """Return the engine, on the same pool, with somebody who is told of what it does."""
    return engine.execution_options(**{OBSERVER_OPTION: observer, POOL_OPTION: pool})


def observer_of(engine: AsyncEngine) -> DatabaseObserver | None:
    """Return who is to be told of what an engine's connections do."""
    observer: DatabaseObserver | None = _option(engine, OBSERVER_OPTION)
    return observer


def pool_name_of(engine: AsyncEngine) -> PoolName:
    """Return what the engine's connections are for."""
    name: PoolName = _option(engine, POOL_OPTION) or "rw"
    return name


def begins_with(engine: AsyncEngine) -> str | None:
    """Return the statement with which each transaction begins, and that each statement has to be
    in one; None: neither."""
    statement: str | None = _option(engine, BEGIN_OPTION)
    return statement


def _option(engine: AsyncEngine, name: str) -> Any:  # noqa: ANN401  as the option's
    return engine.sync_engine.get_execution_options().get(name)


def connection_counts(engine: AsyncEngine) -> dict[str, int]:
    """Return how many connections of the pool are ``idle`` and ``used``, and the ``max``.

    Behind a pooler none is kept, and none is counted.
    """
    pool = engine.sync_engine.pool
    if not isinstance(pool, QueuePool):
        return {"idle": 0, "used": 0, "max": 0}
    return {"idle": pool.checkedin(), "used": pool.checkedout(), "max": pool.size()}


def create_engine(
    url: str,
    *,
    size: int,
    pooler: Literal["none", "pgbouncer"] = "none",
    application_name: str = "foldline",
    statement_timeout_s: float = STATEMENT_TIMEOUT_S,
    is_replica: bool = False,
) -> AsyncEngine:
    """Return an engine; it connects when it is first used. The caller disposes of it.

    Args:
        url: `postgresql://...` in any form that libpq accepts.
        size: connections kept and opened at most; behind a pooler none is kept.
        pooler: what stands between us and Postgres.
        application_name: shown in `pg_stat_activity`.
        statement_timeout_s: after this the server cancels a statement; where it does not answer
            even then, the connection is given up.
        is_replica: a server that takes no writes will do.
    """
    answer_timeout_s = statement_timeout_s + ANSWER_GRACE_S
    guc = {
        # The planner's guess for the live read makes it compile: 130 ms for a statement of 0.2 ms.
        "jit": "off",
        # Where most sessions are small, the planner believes that each is, and takes any index that
        # begins with `session_uid` for as good. Lookups say the order of the index that they mean;
        # an index that would need a sort is then out of the question.
        "enable_sort": "off",
        "statement_timeout": _milliseconds(statement_timeout_s),
        "idle_in_transaction_session_timeout": _milliseconds(IDLE_IN_TRANSACTION_TIMEOUT_S),
    }
    # With several hosts in the URL, the one that takes writes: this is how a failover ends.
    wanted = SessionAttribute.any if is_replica else SessionAttribute.read_write
    if pooler == "pgbouncer":
        return _engine_behind_pgbouncer(
            url,
            guc=guc,
            application_name=application_name,
            answer_timeout_s=answer_timeout_s,
            wanted=wanted,
        )
    engine = create_async_engine(
        "postgresql+asyncpg://",
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # The last used first: what is idle stays idle, and an idle cut by a firewall is met rarely.
        pool_use_lifo=True,
        connect_args={
            "async_creator_fn": _connector(
                url,
                guc | {"application_name": application_name},
                answer_timeout_s=answer_timeout_s,
                wanted=wanted,
            ),
        },
    )
    _drop_closed_on_checkout(engine)
    return engine


def _engine_behind_pgbouncer(
    url: str,
    *,
    guc: dict[str, str],
    application_name: str,
    answer_timeout_s: float,
    wanted: SessionAttribute,
) -> AsyncEngine:
    # In transaction mode the next transaction may meet another server: statements are prepared anew
    # under names of their own, nothing is set for the session, and the pooler does the pooling.
    set_local = "SELECT " + ", ".join(
        f"set_config('{name}', '{value}', true)" for name, value in guc.items()
    )
    return create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        execution_options={BEGIN_OPTION: set_local},
        connect_args={
            "async_creator_fn": _connector(
                url,
                {"application_name": application_name},
                answer_timeout_s=answer_timeout_s,
                wanted=wanted,
                statement_cache_size=0,
            ),
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"__foldline_{uuid4()}__",
        },
    )


def _connector(
    url: str,
    server_settings: dict[str, str],
    *,
    answer_timeout_s: float,
    wanted: SessionAttribute,
    statement_cache_size: int = 100,
) -> Callable[[], Awaitable["asyncpg.Connection[asyncpg.Record]"]]:
    dsn = plain_url(url)

    async def connect() -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=answer_timeout_s,
            server_settings=server_settings,
            target_session_attrs=wanted,
            statement_cache_size=statement_cache_size,
        )

    return connect


def plain_url(url: str) -> str:
    """Return a URL that asyncpg takes: SQLAlchemy's spelling of the driver is dropped."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def _drop_closed_on_checkout(engine: AsyncEngine) -> None:
    # A ping would cost a round trip on every request. That the server closed the connection is
    # known on our side already, and the pool replaces it when told so.
    @event.listens_for(engine.sync_engine, "checkout")
    def refuse_closed(dbapi_connection: Any, *_: object) -> None:  # noqa: ANN401  SQLAlchemy's
        if dbapi_connection.driver_connection.is_closed():
            raise exc.DisconnectionError


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
