"""What nearly every port speaks of: connections, the key of a session, the time, tokens."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

Connection: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session of a tenant. ``uid`` is uuid5(tenant, session id): computed, never looked up."""

    tenant_id: str
    session_id: str
    uid: UUID


class Database(Protocol):
    """Where connections come from."""

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """One transaction: committed when the block is left, rolled back on an error."""

    def snapshot(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction for reading, whose statements all see the same moment."""

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for single read statements."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""


class TokenCounter(Protocol):
    """The offline tokenizer."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""


class TokenMemory(TokenCounter, Protocol):
    """A tokenizer that remembers what it counted."""

    def known(self, text: str) -> int | None:
        """Return the count of a text that is remembered, without counting any."""
