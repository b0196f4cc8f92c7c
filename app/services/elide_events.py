"""Elide: read events as stubs from now on, and undo it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.errors import EventNotFoundError, SessionNotFoundError
from app.core.events import Elision, ElisionRequest, UndoRequest
from app.ports import Database, EventLog, SessionKey
from app.services.append_events import AppendResult
from app.services.append_marker import AppendMarker, NewMarker
from app.services.idempotency import IdempotentRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class NewElision:
    """What to leave out."""

    key: SessionKey
    seqs: Sequence[int]
    #: So many characters of each body stay.
    keep_chars: int = 0
    expected_seq: int | None = None
    idempotent: IdempotentRequest | None = None


class ElideEvents:
    """Leaves bodies out of what is compiled; the log keeps them."""

    def __init__(self, *, database: Database, log: EventLog, append_marker: AppendMarker) -> None:
        self._database = database
        self._log = log
        self._append_marker = append_marker

    async def __call__(self, wanted: NewElision) -> AppendResult:
        """Append the elision: of all the events or none.

        Raises:
            InvalidInputError: a seq is no event, or pinned.
        """
        return await self._append_marker(
            NewMarker(
                key=wanted.key,
                request=ElisionRequest(tuple(wanted.seqs), wanted.keep_chars),
                pointer="/seqs",
                expected_seq=wanted.expected_seq,
                idempotent=wanted.idempotent,
            )
        )

    async def undo(
        self, key: SessionKey, seq: int, *, idempotent: IdempotentRequest | None = None
    ) -> AppendResult:
        """Bring the bodies back.

        Raises:
            EventNotFoundError: there is no elision at this seq.
        """
        async with self._database.connection() as connection:
            if await self._log.find_session(connection, key) is None:
                raise SessionNotFoundError
            target = await self._log.get_event(connection, key, seq)
        if target is None or not isinstance(target.marker, Elision):
            raise EventNotFoundError(f"there is no elision at seq {seq}")
        return await self._append_marker(
            NewMarker(key=key, request=UndoRequest(seq), pointer="/path/seq", idempotent=idempotent)
        )
