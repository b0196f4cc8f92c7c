"""What compaction is decided by and planned on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.core.compaction.facts import PlanFacts
from app.core.compaction.policy import CompactionPolicy
from app.core.events import Event
from app.core.invocations import InvocationFacts
from app.ports.base import Connection, SessionKey
from app.ports.log import CompactionStanding, LockedSession


class CompactionCounters(Protocol):
    """The counts by which compaction is seen to be due. Kept on the session's row."""

    async def invocations(
        self, connection: Connection, key: SessionKey, invocation_ids: Sequence[str]
    ) -> Mapping[str, InvocationFacts]:
        """Return what stands of these invocations, of those that have events."""

    async def advance(
        self,
        connection: Connection,
        key: SessionKey,
        *,
        invocation_id: str,
        is_complete: bool,
        completed: int,
    ) -> CompactionStanding | None:
        """Note where the newest invocation stands, and that so many more are complete."""

    async def standing(self, connection: Connection, key: SessionKey) -> CompactionStanding | None:
        """Return what stands; None if there is no such session."""

    async def recount(self, connection: Connection, key: SessionKey, section_tokens: int) -> None:
        """Count the live events anew, after a marker; what was refused may be tried again.

        Args:
            section_tokens: of the summaries that are shown now.
        """

    async def settle(
        self, connection: Connection, key: SessionKey, *, invocations_new: int, tokens_tried: int
    ) -> None:
        """Set what a planner found; the caller holds the session's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRead:
    """What a compaction starts from, all of one moment."""

    session: LockedSession
    standing: CompactionStanding
    facts: PlanFacts
    #: The bodies of the facts' events, by seq.
    events: Mapping[int, Event]


class CompactionReads(Protocol):
    """Reads a log for the planner and the summarizer."""

    async def read(
        self,
        connection: Connection,
        key: SessionKey,
        choose: Callable[[CompactionStanding], CompactionPolicy],
        *,
        projected_tokens: int | None = None,
    ) -> CompactionRead | None:
        """Read a session; None if there is none.

        Args:
            connection: of a snapshot.
            key: the session's.
            choose: returns the policy of a session, which decides what has to be read.
            projected_tokens: of a whole request, where one was compiled.
        """
