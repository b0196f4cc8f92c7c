"""Append one marker that the service makes itself: a rewind, a pin, a fold, an undo, a policy."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from app.core.canonical import Json, canonical_json
from app.core.errors import InvalidInputError
from app.core.events import USER, MarkerRequest
from app.core.json_text import RawItem
from app.formats.adk import marker_body
from app.ports import Clock, Connection, Database, IdempotencyKeys, LockedSession, SessionKey
from app.services import idempotency
from app.services.append_events import Append, AppendEvents, AppendResult, AppendStep, restored
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import SentBatch, uuid7

#: Looks at an append before it is committed, and refuses it by raising.
CheckStep: TypeAlias = Callable[[AppendStep], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMarker:
    """A marker to append."""

    key: SessionKey
    request: MarkerRequest
    #: The field of the caller's request that decides what the marker reaches.
    pointer: str = ""
    #: Further members of the event's actions, for the record.
    actions: dict[str, Json] | None = None
    expected_seq: int | None = None
    idempotent: IdempotentRequest | None = None


class AppendMarker:
    """Appends a marker through the same door as every event."""

    def __init__(
        self,
        *,
        database: Database,
        keys: IdempotencyKeys,
        append_events: AppendEvents,
        clock: Clock,
    ) -> None:
        self._database = database
        self._keys = keys
        self._append = append_events
        self._clock = clock

    async def __call__(self, marker: NewMarker, *, check: CheckStep | None = None) -> AppendResult:
        """Append the marker; its seq is that of the only event appended.

        Raises:
            InvalidInputError: the marker reaches nothing, with the pointer of the marker.
        """
        async with self._database.transaction() as connection:
            kept = await idempotency.claim(self._keys, connection, marker.idempotent)
            if kept is not None:
                return restored(kept)
            session = await self._append.lock(connection, marker.key)
            step = await self.insert(connection, session, marker)
            if check is not None:
                await check(step)
            result = AppendResult(appended=tuple(step.appended), head_seq=step.facts.head_seq)
            await idempotency.keep(
                self._keys, connection, marker.idempotent, asdict(result), key=marker.key
            )
        return result

    async def insert(
        self, connection: Connection, session: LockedSession, marker: NewMarker
    ) -> AppendStep:
        """Append within a transaction that another service has open, session locked."""
        append = Append(key=marker.key, batch=self._batch(marker), expected_seq=marker.expected_seq)
        try:
            return await self._append.prepare_and_insert(connection, session, append)
        except InvalidInputError as error:
            error.pointer = marker.pointer
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
