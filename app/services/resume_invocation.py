"""Where to resume an invocation: its events, what is open, and whether it is complete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json
from app.core.errors import NotFoundError, SessionNotFoundError
from app.core.events import MESSAGE
from app.core.final_response import is_final_response
from app.core.index import Index
from app.core.json_text import parse_json
from app.core.ranges import contains
from app.core.resolve import Needs
from app.formats.adk import ParsedEvent, parse_event
from app.ports import (
    Connection,
    Database,
    EventFilter,
    EventLog,
    LockedSession,
    LoggedEvent,
    SessionKey,
)
from app.services.prepare_events import EventPreparer
from app.services.read_events import EventView, ReadEvents

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of the invocation that has no result."""

    seq: int
    call_id: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationView:
    """An invocation as far as it came."""

    invocation_id: str
    events: tuple[EventView, ...]
    open_calls: tuple[OpenCall, ...]
    #: The newest checkpoint of each agent that has not ended.
    agent_state: Mapping[str, Json]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Stored:
    logged: LoggedEvent
    parsed: ParsedEvent
    actions: Mapping[str, Json]


class ResumeInvocation:
    """Reads one invocation."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        preparer: EventPreparer,
        read_events: ReadEvents,
    ) -> None:
        self._database = database
        self._log = log
        self._preparer = preparer
        self._read_events = read_events

    async def __call__(self, key: SessionKey, invocation_id: str) -> InvocationView:
        """Return the invocation.

        Raises:
            NotFoundError: no event has this invocation id.
        """
        async with self._database.connection() as connection:
            session = await self._log.find_session(connection, key)
            if session is None:
                raise SessionNotFoundError
            logged = await self._events(connection, key, session.index, invocation_id)
            if not logged:
                raise NotFoundError(f"no event has the invocation id {invocation_id!r}")
            bodies = [self._stored(each) for each in logged]
            open_calls = await self._open_calls(connection, key, session, bodies)
            is_followed = await self._is_followed(connection, key, session.index, logged)
        ended = any(stored.parsed.completes_invocation for stored in bodies)
        return InvocationView(
            invocation_id=invocation_id,
            events=tuple(self._read_events.view(each, session.index) for each in logged),
            open_calls=open_calls,
            agent_state=_agent_state(bodies),
            is_complete=ended or is_followed or (not open_calls and _has_final_response(bodies)),
        )

    async def _events(
        self, connection: Connection, key: SessionKey, index: Index, invocation_id: str
    ) -> list[LoggedEvent]:
        events: list[LoggedEvent] = []
        after_seq = 0
        while True:
            wanted = EventFilter(invocation_id=invocation_id, after_seq=after_seq, limit=PAGE)
            found = await self._log.list_events(connection, key, wanted, index)
            events.extend(found)
            if len(found) < PAGE:
                return events
            after_seq = found[-1].seq

    def _stored(self, logged: LoggedEvent) -> "_Stored":
        body = self._preparer.source_event(
            raw=parse_json(logged.raw),
            source_format=logged.source_format,
            item_part=logged.item_part,
            author=logged.author,
        )
        return _Stored(logged, parse_event(body, allow_markers=True), _actions(body))

    async def _open_calls(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession,
        bodies: Sequence["_Stored"],
    ) -> tuple[OpenCall, ...]:
        """Return the calls without a result, wherever in the log a result may stand."""
        calls = [
            OpenCall(stored.logged.seq, call.id, call.name)
            for stored in bodies
            for call in stored.parsed.event.calls
            if not contains(session.index.rewound, stored.logged.seq)
        ]
        if not calls:
            return ()
        needs = Needs(
            call_ids=frozenset(call.call_id for call in calls if call.call_id),
            call_names=frozenset(call.name for call in calls if not call.call_id),
        )
        facts = await self._log.load_facts(connection, key, session, needs)
        answered = {
            (known.seq, known.id, known.name)
            for same_id in facts.calls_by_id.values()
            for known in same_id
            if known.answers
        }
        return tuple(call for call in calls if (call.seq, call.call_id, call.name) not in answered)

    async def _is_followed(
        self,
        connection: Connection,
        key: SessionKey,
        index: Index,
        logged: Sequence[LoggedEvent],
    ) -> bool:
        """Tell whether an event of a later invocation has arrived."""
        first, earlier = logged[0], {logged[0].invocation_id, ""}
        after_seq = first.seq
        while True:
            wanted = EventFilter(after_seq=after_seq, limit=PAGE, kind=MESSAGE)
            found = await self._log.list_events(connection, key, wanted, index)
            for event in found:
                if event.invocation_id in earlier:
                    continue
                earlier.add(event.invocation_id)
                seqs = await self._log.event_seqs(connection, key, event.invocation_id)
                if seqs[0] > first.seq:
                    return True
            if len(found) < PAGE:
                return False
            after_seq = found[-1].seq


def _has_final_response(bodies: Sequence[_Stored]) -> bool:
    """Tell whether a final response has arrived in the lane where the invocation began."""
    lane = bodies[0].parsed.event.lane
    return any(
        is_final_response(stored.parsed.event)
        and (stored.parsed.event.lane.isolation_scope, stored.parsed.event.lane.branch)
        == (lane.isolation_scope, lane.branch)
        for stored in bodies
    )


def _agent_state(bodies: Sequence[_Stored]) -> dict[str, Json]:
    states: dict[str, Json] = {}
    for stored in bodies:
        state = _either(stored.actions, "agent_state", "agentState")
        if _either(stored.actions, "end_of_agent", "endOfAgent"):
            states.pop(stored.logged.author, None)
        elif state is not None:
            states[stored.logged.author] = state
    return states


def _actions(body: Mapping[str, Json]) -> Mapping[str, Json]:
    actions = body.get("actions")
    return actions if isinstance(actions, dict) else {}


def _either(members: Mapping[str, Json], snake: str, camel: str) -> Json:
    return members.get(snake, members.get(camel))
