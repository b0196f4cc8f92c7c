"""The answer to whoever asked for a marker: the marker, as the event it is."""

from fastapi import Response

from app.api.answers import text_answer
from app.api.schemas.events import event_text
from app.ports import SessionKey
from app.services.append_events import AppendResult
from app.services.bundle import Services


async def marker_answer(bundle: Services, key: SessionKey, result: AppendResult) -> Response:
    """Return the marker: 201 where it was appended, 200 where it was there already."""
    (appended,) = result.appended
    view = await bundle.read_events.one(key, appended.seq or 0)
    return text_answer(
        event_text(view),
        status=200 if appended.is_duplicate else 201,
        head_seq=result.head_seq,
        is_replayed=result.is_replayed,
    )
