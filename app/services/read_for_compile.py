"""Read the log for a compile: at the head, at a position, or all of it; with what is to be expanded
read as if it had never been folded."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from app.core.copying import replace
from app.core.errors import InvalidInputError, NotYetVisibleError, SessionNotFoundError
from app.core.events import Elision, Fold, Marker, Undo, markers_of
from app.core.index import Index, resolve
from app.core.ranges import FOREVER
from app.core.resolve import Log
from app.ports import Connection, EventLog, LogRead, ReadBefore, SessionKey
from app.services.compiled import CompileRequest

#: How often a wait for a seq looks again.
POLL_S: Final = 0.02


class ReadForCompile:
    """Reads what a request is about."""

    def __init__(self, *, log: EventLog, min_seq_wait_ms: int) -> None:
        self._log = log
        self._wait_s = min_seq_wait_ms / 1000

    async def __call__(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        before: ReadBefore | None = None,
    ) -> LogRead:
        """Return what was read, waiting for ``min_seq`` if need be.

        Raises:
            SessionNotFoundError: there is no such session.
            NotYetVisibleError: the log does not reach ``min_seq`` in time.
            InvalidInputError: a position lies beyond the head, or there is no such fold to expand.
        """
        read = await self._read_once(connection, key, request, before)
        deadline_s = time.monotonic() + self._wait_s
        while request.min_seq is not None and read.head_seq < request.min_seq:
            if time.monotonic() >= deadline_s:
                raise NotYetVisibleError(min_seq=request.min_seq, head_seq=read.head_seq)
            await asyncio.sleep(POLL_S)
            read = await self._read_once(connection, key, request, before)
        if request.as_of_seq is not None and request.as_of_seq > read.head_seq:
            raise beyond_head(read.head_seq)
        return await self._with_expanded(connection, key, request, read)

    async def _read_once(
        self,
        connection: Connection,
        key: SessionKey,
        request: CompileRequest,
        before: ReadBefore | None,
    ) -> LogRead:
        reader = request.options.reader
        # What an expanded fold masks is not among the live.
        if request.options.expand:
            read = await self._log.read_all(connection, key, request.as_of_seq, reader=reader)
        elif request.as_of_seq is not None:
            read = await self._log.read_at(connection, key, reader, request.as_of_seq)
        else:
            read = await self._log.read_live(
                connection, key, reader, model=request.options.model, before=before
            )
        if read is None:
            raise SessionNotFoundError
        return read

    async def _with_expanded(
        self, connection: Connection, key: SessionKey, request: CompileRequest, read: LogRead
    ) -> LogRead:
        if not request.options.expand:
            return read
        markers = await self._log.markers(connection, key, position_of(request, read))
        return replace(read, index=expanded(read.index, markers, request))


def expanded(index: Index, markers: Sequence[tuple[int, Marker]], request: CompileRequest) -> Index:
    """Return the index as if the folds and elisions to expand were undone."""
    folds = {seq for seq, marker in markers if isinstance(marker, Fold | Elision)}
    for number, seq in enumerate(request.options.expand):
        if seq not in folds:
            detail = f"there is no compaction at seq {seq}"
            raise InvalidInputError(detail, pointer=f"/expand/{number}")
    if not request.options.expand:
        return index
    undone = [(FOREVER + number, Undo(seq)) for number, seq in enumerate(request.options.expand)]
    return resolve([*markers, *undone])


def position_of(request: CompileRequest, read: LogRead) -> int:
    """Return the position that is compiled."""
    return read.head_seq if request.as_of_seq is None else request.as_of_seq


def beyond_head(head_seq: int) -> InvalidInputError:
    """Return the error of a position after the head."""
    return InvalidInputError(f"the head is at {head_seq}", pointer="/as_of_seq")


def up_to(events: Log, as_of_seq: int) -> Log:
    """Return the log as it was when the head was at a seq."""
    kept = events.events[:as_of_seq]
    return Log(kept, resolve(markers_of(kept)))
