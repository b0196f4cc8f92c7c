"""Elide: read events as stubs from now on, and undo it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.copying import replace
from app.core.elision import leaves_out
from app.core.errors import EventNotFoundError, InvalidInputError, SessionNotFoundError
from app.core.events import Elision, ElisionRequest, UndoRequest
from app.core.index import UNTOUCHED
from app.core.ranges import of_seqs
from app.core.tokens import CountTokens
from app.ports import Database, EventFilter, EventLog, LoggedEvent, SessionKey
from app.services.append_events import AppendResult, AppendStep
from app.services.append_marker import AppendMarker, NewMarker
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import EventPreparer


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

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        preparer: EventPreparer,
        count: CountTokens,
        append_marker: AppendMarker,
    ) -> None:
        self._database = database
        self._log = log
        self._preparer = preparer
        self._count = count
        self._append_marker = append_marker

    async def __call__(self, wanted: NewElision) -> AppendResult:
        """Append the elision: of all the events or none.

        Raises:
            InvalidInputError: a seq is no event, or pinned, or all that is there is too short to
                be left out.
        """
        is_shorter = await self._is_shorter(wanted)

        async def check(step: AppendStep) -> None:
            # What is a stub now may be brought back by keeping more of it.
            index = step.session.index
            if not is_shorter and not any(index.elision_of(seq) for seq in wanted.seqs):
                detail = "nothing is left out: no body there takes more than its stub would"
                raise InvalidInputError(detail, pointer="/seqs")

        return await self._append_marker(
            NewMarker(
                key=wanted.key,
                request=ElisionRequest(tuple(wanted.seqs), wanted.keep_chars),
                pointer="/seqs",
                expected_seq=wanted.expected_seq,
                idempotent=wanted.idempotent,
            ),
            check=check,
        )

    async def _is_shorter(self, wanted: NewElision) -> bool:
        """Tell whether a body gives way. Events never change, so no lock is needed."""
        seqs = of_seqs(wanted.seqs)
        named = EventFilter(seqs=seqs, limit=len(wanted.seqs))
        async with self._database.connection() as connection:
            events = await self._log.list_events(connection, wanted.key, named, UNTOUCHED)
        # Beside the loop: bodies may be long.
        return await asyncio.to_thread(self._leaves_out, events, wanted.keep_chars)

    def _leaves_out(self, events: Sequence[LoggedEvent], keep_chars: int) -> bool:
        return any(self._gives_way(each, keep_chars) for each in events)

    def _gives_way(self, logged: LoggedEvent, keep_chars: int) -> bool:
        event = self._preparer.derive(logged.raw, logged.source_format, logged.item_part)
        return leaves_out(replace(event, seq=logged.seq), keep_chars=keep_chars, count=self._count)

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
