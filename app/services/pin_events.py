"""Pin events so that no fold covers them, unpin them, and list what is pinned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.canonical import Json
from app.core.copying import replace
from app.core.errors import InvalidInputError, PinLimitError, SessionNotFoundError
from app.core.events import MESSAGE, USER, Marker, Pin, PinRequest, UnpinRequest
from app.core.index import Index, effective_markers
from app.core.policy import effective_policy, pin_cap
from app.core.ranges import contains
from app.ports import (
    Connection,
    Database,
    EventFilter,
    EventLog,
    LockedSession,
    SessionKey,
    Sessions,
)
from app.services.append_events import AppendStep
from app.services.append_marker import AppendMarker, NewMarker
from app.services.idempotency import IdempotentRequest

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    """Which events to pin or unpin; exactly one of the three is given."""

    key: SessionKey
    seqs: Sequence[int] | None = None
    #: The newest user message and what came after it.
    last_turn: bool = False
    #: So many events from the start.
    first: int | None = None
    expected_seq: int | None = None
    idempotent: IdempotentRequest | None = None


@dataclass(frozen=True, slots=True)
class PinnedEvent:
    """An event that folds leave alone."""

    seq: int
    tokens: int
    #: The marker that pinned it last.
    marker_seq: int


@dataclass(frozen=True, slots=True)
class Pins:
    """All that is pinned in a session."""

    pins: tuple[PinnedEvent, ...]
    head_seq: int
    is_replayed: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of all pinned events."""
        return sum(pin.tokens for pin in self.pins)


class PinEvents:
    """Changes and lists pins; every change is an event."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        sessions: Sessions,
        append_marker: AppendMarker,
        default_policy: Json,
    ) -> None:
        self._database = database
        self._log = log
        self._sessions = sessions
        self._append_marker = append_marker
        self._default_policy = default_policy

    async def pin(self, change: PinChange) -> Pins:
        """Pin events, each with its whole call group: all of them or none.

        Raises:
            PinLimitError: the pinned events would exceed the policy's cap.
            InvalidInputError: a seq is no event of the session.
        """
        seqs = await self._seqs(change)
        marker = self._marker(change, PinRequest(tuple(seqs)))
        result = await self._append_marker(
            marker, check=lambda step: self._check_cap(change.key, step)
        )
        return replace(await self.pins(change.key), is_replayed=result.is_replayed)

    async def unpin(self, change: PinChange) -> Pins:
        """Let events be folded again.

        Raises:
            InvalidInputError: a seq is not pinned.
        """
        seqs = await self._seqs(change)
        pinned = {pin.seq for pin in (await self.pins(change.key)).pins}
        for number, seq in enumerate(seqs):
            if seq not in pinned and change.seqs is not None:
                raise InvalidInputError(f"seq {seq} is not pinned", pointer=f"/seqs/{number}")
        seqs = [seq for seq in seqs if seq in pinned]
        if seqs:
            await self._append_marker(self._marker(change, UnpinRequest(tuple(seqs))))
        return await self.pins(change.key)

    async def pins(self, key: SessionKey) -> Pins:
        """Return what is pinned now, by seq."""
        async with self._database.connection() as connection:
            session = await self._session(connection, key)
            markers = await self._log.markers(connection, key)
            pinned = await self._pinned(connection, key, session.index, markers)
        return Pins(tuple(pinned), session.head_seq)

    def _marker(self, change: PinChange, request: PinRequest | UnpinRequest) -> NewMarker:
        return NewMarker(
            key=change.key,
            request=request,
            pointer="/seqs",
            expected_seq=change.expected_seq,
            idempotent=change.idempotent,
        )

    async def _seqs(self, change: PinChange) -> list[int]:
        given = [change.seqs is not None, change.last_turn, change.first is not None]
        if sum(given) != 1:
            raise InvalidInputError("exactly one of seqs, last_turn and first is needed")
        if change.seqs is not None:
            if not change.seqs:
                raise InvalidInputError("no seq is named", pointer="/seqs")
            return list(change.seqs)
        async with self._database.connection() as connection:
            session = await self._session(connection, change.key)
            if change.first is not None:
                seqs = await self._first(connection, change.key, session.index, change.first)
            else:
                seqs = await self._last_turn(connection, change.key, session.index)
        if not seqs:
            raise InvalidInputError("there is no such event to pin")
        return seqs

    async def _first(
        self, connection: Connection, key: SessionKey, index: Index, count: int
    ) -> list[int]:
        wanted = EventFilter(status="live", kind=MESSAGE, limit=count)
        found = await self._log.list_events(connection, key, wanted, index)
        return [event.seq for event in found]

    async def _last_turn(self, connection: Connection, key: SessionKey, index: Index) -> list[int]:
        seqs: list[int] = []
        before_seq = None
        while True:
            wanted = EventFilter(
                status="live", kind=MESSAGE, before_seq=before_seq, limit=PAGE, descending=True
            )
            found = await self._log.list_events(connection, key, wanted, index)
            for event in found:
                seqs.append(event.seq)
                if event.author == USER:
                    return sorted(seqs)
            if len(found) < PAGE:
                return sorted(seqs)
            before_seq = found[-1].seq

    async def _check_cap(self, key: SessionKey, step: AppendStep) -> None:
        own = step.session.policy
        app = await self._sessions.app_policy(step.connection, key.tenant_id, step.session.app_name)
        cap = pin_cap(effective_policy(own, app, self._default_policy))
        tokens = await self._log.count_tokens(step.connection, key, step.facts.index.pinned)
        if tokens > cap:
            raise PinLimitError(
                f"the pins would take {tokens} tokens, the cap is {cap}", pointer="/seqs"
            )

    async def _pinned(
        self,
        connection: Connection,
        key: SessionKey,
        index: Index,
        markers: Sequence[tuple[int, Marker]],
    ) -> list[PinnedEvent]:
        effective = effective_markers(markers)
        pins = [(seq, m) for seq, m in markers if isinstance(m, Pin) and seq in effective]
        pinned: list[PinnedEvent] = []
        for start, end in index.pinned:
            after_seq = start - 1
            while after_seq < end:
                wanted = EventFilter(after_seq=after_seq, before_seq=end + 1, limit=PAGE)
                found = await self._log.list_events(connection, key, wanted, index)
                pinned.extend(
                    PinnedEvent(event.seq, event.tokens, _pinned_by(event.seq, pins))
                    for event in found
                    if event.marker is None
                )
                after_seq = found[-1].seq if len(found) == PAGE else end
        return pinned

    async def _session(self, connection: Connection, key: SessionKey) -> LockedSession:
        session = await self._log.find_session(connection, key)
        if session is None:
            raise SessionNotFoundError
        return session


def _pinned_by(seq: int, pins: Sequence[tuple[int, Pin]]) -> int:
    return max(marker_seq for marker_seq, pin in pins if contains(pin.seqs, seq))
