"""Where the invocations of a session stand: which began last, and which are complete.

An invocation is complete when a final response arrives in the lane of its first event and no call
of it is open, when an event of a later one arrives, or when an event says so. So only the one that
began last can be incomplete, and an earlier one that goes on changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from app.core.copying import replace
from app.core.events import Event
from app.core.final_response import is_final_response


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationFacts:
    """What the log says of an invocation."""

    first_seq: int
    #: Of its first event.
    isolation_scope: str | None
    branch: str
    has_open_calls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The invocation that began last."""

    #: Empty before the first.
    invocation_id: str = ""
    is_complete: bool = False
    #: Invocations that became complete while these events were taken.
    completed: int = 0

    def ended(self) -> "Newest":
        """Return it complete."""
        return replace(self, is_complete=True, completed=self.completed + 1)


def concerned(newest: Newest, events: Iterable[Event], ending: frozenset[str]) -> frozenset[str]:
    """Return the invocations of which the facts are needed; none for most appends.

    Args:
        newest: as it stands before the events.
        events: that were appended, in order.
        ending: invocations of which an event says that they end.
    """
    return frozenset(
        event.invocation_id
        for event in events
        if event.marker is None
        and event.invocation_id
        and (
            event.invocation_id != newest.invocation_id
            or (
                not newest.is_complete
                and (event.invocation_id in ending or is_final_response(event))
            )
        )
    )


def advance(
    newest: Newest,
    events: Iterable[Event],
    facts: Mapping[str, InvocationFacts],
    *,
    ends: Callable[[Event], bool],
) -> Newest:
    """Return where the newest invocation stands after these events.

    Args:
        newest: as it stands before the events.
        events: that were appended, in order.
        facts: of the concerned ones, with these events in them.
        ends: tells whether an event says that its invocation ends.
    """
    for event in events:
        begun = facts.get(event.invocation_id)
        if event.marker is not None or begun is None:
            continue
        if event.invocation_id != newest.invocation_id:
            if begun.first_seq != event.seq:
                continue
            if newest.invocation_id and not newest.is_complete:
                newest = newest.ended()
            newest = replace(newest, invocation_id=event.invocation_id, is_complete=False)
        if not newest.is_complete and (ends(event) or _is_answer(event, begun)):
            newest = newest.ended()
    return newest


def _is_answer(event: Event, begun: InvocationFacts) -> bool:
    lane = (event.lane.isolation_scope, event.lane.branch)
    return (
        is_final_response(event)
        and not begun.has_open_calls
        and lane == (begun.isolation_scope, begun.branch)
    )
