"""What re-checks a stored session finds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from app.core.canonical import Json
from app.core.events import Event
from app.core.lanes import Lane
from app.ports.base import Connection, SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a stored session."""

    #: A slug, such as ``gap``, ``derived`` or ``index``.
    kind: str
    #: Where, if it is one event's.
    seq: int | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyAgain:
    """What a stored event's body says, read again."""

    #: With its tokens, without its place in the log.
    event: Event
    body_hash: bytes
    #: What may be stored of it.
    state_delta: Mapping[str, Json]
    #: Without a time in its body the server gave it one.
    has_timestamp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """A reply that says what it was compiled for."""

    seq: int
    author: str
    lane: Lane
    compiled_seq: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCheck:
    """What a check of a session found."""

    findings: tuple[Finding, ...]
    events: int
    #: Some of its replies that say what they were compiled for, in order.
    replies: tuple[RecordedReply, ...]
    #: How many others there are; what those were compiled for begins what later ones were.
    replies_left: int = 0


class LogChecks(Protocol):
    """Compares what is stored of a session with what it should be."""

    async def sessions(
        self, connection: Connection, *, tenant_id: str | None, after: UUID | None, limit: int
    ) -> Sequence[SessionKey]:
        """Return sessions by their uid, of a tenant or of all."""

    async def check(self, connection: Connection, key: SessionKey) -> LogCheck | None:
        """Check a session, on a snapshot; None if there is no such session."""

    async def strays(self, connection: Connection) -> Sequence[Finding]:
        """Return rows of sessions that are not there; reads the whole log."""
