"""Append one marker that the service makes itself: a rewind, a pin, a fold, an undo, a policy."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias
from uuid import UUID

from app.core.canonical import Json, canonical_json
from app.core.errors import FoldlineError, InvalidEventError, InvalidInputError, TooLargeError
from app.core.events import (
    USER,
    ActivationRequest,
    ElisionRequest,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    UndoRequest,
    UnpinRequest,
)
from app.core.index import already_done, is_gone
from app.core.json_text import RawItem
from app.core.resolve import Facts, Resolver, needs_of
from app.formats.adk import marker_body
from app.ports import (
    Clock,
    Connection,
    Database,
    EventLog,
    IdempotencyKeys,
    LockedSession,
    Meter,
    SessionKey,
)
from app.services import idempotency
from app.services.append_events import (
    Append,
    AppendedEvent,
    AppendEvents,
    AppendResult,
    AppendStep,
    restored,
)
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import PreparedEvent, SentBatch, uuid7

#: Markers that mean events one by one.
NAMING_SEQS: Final = (PinRequest, UnpinRequest, ElisionRequest)
#: Looks at an append before it is committed, and refuses it by raising.
CheckStep: TypeAlias = Callable[[AppendStep], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMarker:
    """A marker to append."""

    key: SessionKey
    request: MarkerRequest
    #: The field of the caller's request that decides what the marker reaches.
    pointer: str = ""
    #: The field that decides how large the marker is, if another.
    size_pointer: str | None = None
    #: Further members of the event's actions, for the record.
    actions: dict[str, Json] | None = None
    expected_seq: int | None = None
    idempotent: IdempotentRequest | None = None

    def pointer_of(self, error: InvalidInputError) -> str:
        """Return what is wrong in the caller's request: of a list, which element."""
        seqs = self.request.seqs if isinstance(self.request, NAMING_SEQS) else ()
        if isinstance(error, InvalidEventError) and error.seq in seqs:
            return f"{self.pointer}/{seqs.index(error.seq)}"
        return self.pointer


@dataclass(frozen=True, slots=True)
class ForeseenMarker:
    """A marker that is ready to append, and what was read for it before the lock."""

    marker: NewMarker
    append: Append
    prepared: Sequence[PreparedEvent]
    #: Of the incarnation; None: what it needs is little, and read under the lock.
    facts: Facts | None = None
    incarnation: UUID | None = None


class AppendMarker:
    """Appends a marker through the same door as every event."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        keys: IdempotencyKeys,
        append_events: AppendEvents,
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._database = database
        self._log = log
        self._keys = keys
        self._append = append_events
        self._clock = clock
        self._meter = meter

    async def __call__(self, marker: NewMarker, *, check: CheckStep | None = None) -> AppendResult:
        """Append the marker; its seq is that of the only event appended. What has its effect
        already is not appended again: then the one event is a duplicate, the marker that is there.

        Raises:
            InvalidInputError: the marker reaches nothing, with the pointer of the marker.
        """
        try:
            return await self._stored(marker, check)
        except FoldlineError as error:
            self._meter.append_refused(error)
            raise

    async def _stored(self, marker: NewMarker, check: CheckStep | None) -> AppendResult:
        foreseen = await self.foresee(marker)
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, marker.idempotent)
            if kept is not None:
                self._meter.request_repeated()
                return restored(kept)
            session = await self._append.lock(connection, marker.key, op="marker")
            repeated = await self._repeated(connection, marker, session)
            if repeated is not None:
                await idempotency.keep(
                    self._keys, connection, marker.idempotent, asdict(repeated), key=marker.key
                )
                return repeated
            step = await self.insert(connection, session, foreseen)
            if check is not None:
                await check(step)
            result = AppendResult(appended=tuple(step.appended), head_seq=step.facts.head_seq)
            await idempotency.keep(
                self._keys, connection, marker.idempotent, asdict(result), key=marker.key
            )
        self.count(step, source="api")
        return result

    async def _repeated(
        self, connection: Connection, marker: NewMarker, session: LockedSession
    ) -> AppendResult | None:
        """Return the marker that already does what this one would, as a repeat of it.

        Raises:
            InvalidInputError: what is to be activated was undone or rewound.
        """
        request = marker.request
        if not isinstance(request, UndoRequest | ActivationRequest | ElisionRequest):
            return None
        markers = await self._log.markers(connection, marker.key)
        if isinstance(request, ActivationRequest) and is_gone(markers, request.target_seq):
            detail = f"the fold at seq {request.target_seq} was undone or rewound"
            raise InvalidInputError(detail, pointer=marker.pointer)
        seq = already_done(markers, request)
        event = None if seq is None else await self._log.get_event(connection, marker.key, seq)
        if event is None:
            return None
        same = AppendedEvent(id=event.id, seq=seq, tokens=0, item=0, is_duplicate=True)
        return AppendResult(appended=(same,), head_seq=session.head_seq)

    def count(self, step: AppendStep, *, source: str) -> None:
        """Count what a step has stored; to be called when its transaction has committed."""
        self._append.count(step, source=source)

    async def foresee(self, marker: NewMarker) -> ForeseenMarker:
        """Prepare a marker, and for a fold read all that it spans, which may be long, while nobody
        is kept waiting. Under the lock what came since is read."""
        append = Append(key=marker.key, batch=self._batch(marker), expected_seq=marker.expected_seq)
        try:
            prepared = await self._append.prepare(append)
        except InvalidInputError as error:
            error.pointer = marker.pointer
            raise
        except TooLargeError as error:
            error.pointer = marker.pointer if marker.size_pointer is None else marker.size_pointer
            raise
        request = prepared[0].event.request
        if not isinstance(request, FoldRequest):
            return ForeseenMarker(marker, append, prepared)
        async with self._database.snapshot() as connection:
            session = await self._log.find_session(connection, marker.key)
            if session is None:
                return ForeseenMarker(marker, append, prepared)
            needs = needs_of([prepared[0].event])
            facts = await self._log.load_facts(connection, marker.key, session, needs)
        # Beside the loop: a fold may span a long history.
        await asyncio.to_thread(Resolver(facts).foresee, request)
        return ForeseenMarker(marker, append, prepared, facts, session.incarnation)

    async def insert(
        self, connection: Connection, session: LockedSession, foreseen: ForeseenMarker
    ) -> AppendStep:
        """Append within a transaction that another service has open, session locked."""
        is_same = foreseen.incarnation == session.incarnation
        try:
            return await self._append.insert(
                connection,
                foreseen.append,
                session,
                foreseen.prepared,
                foreseen.facts if is_same else None,
            )
        except InvalidInputError as error:
            error.pointer = foreseen.marker.pointer_of(error)
            raise

    def _batch(self, marker: NewMarker) -> SentBatch:
        body = marker_body(
            marker.request, id=str(uuid7(self._clock.now())), author=USER, invocation_id=""
        )
        if marker.actions:
            actions = body["actions"]
            assert isinstance(actions, dict)
            body = {**body, "actions": {**actions, **marker.actions}}
        return SentBatch(items=[RawItem(body, canonical_json(body))], allow_markers=True)
