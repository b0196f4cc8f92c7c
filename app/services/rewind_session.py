"""Append a rewind: an event that undoes an invocation, or everything after a position."""

from app.core.errors import InvalidInputError
from app.core.events import RewindRequest
from app.ports import SessionKey
from app.services.append_events import AppendResult
from app.services.append_marker import AppendMarker, NewMarker
from app.services.idempotency import IdempotentRequest


class RewindSession:
    """Undoes what followed a position; the log keeps it."""

    def __init__(self, *, append_marker: AppendMarker) -> None:
        self._append_marker = append_marker

    async def __call__(
        self,
        key: SessionKey,
        *,
        before_invocation_id: str | None,
        to_seq: int | None,
        expected_seq: int | None = None,
        idempotent: IdempotentRequest | None = None,
    ) -> AppendResult:
        """Append the rewind.

        Raises:
            RewindTargetError: nothing before the rewind is meant.
        """
        if (before_invocation_id is None) == (to_seq is None):
            raise InvalidInputError("exactly one of before_invocation_id and to_seq is needed")
        return await self._append_marker(
            NewMarker(
                key=key,
                request=RewindRequest(before_invocation_id=before_invocation_id, to_seq=to_seq),
                pointer="/to_seq" if before_invocation_id is None else "/before_invocation_id",
                expected_seq=expected_seq,
                idempotent=idempotent,
            )
        )
