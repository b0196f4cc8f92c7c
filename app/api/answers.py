"""Answers: JSON bytes with the headers that say which version they are."""

from typing import Final

from fastapi import Response

from app.core.canonical import Json, canonical_json

JSON_TYPE: Final = "application/json"


def json_answer(
    body: Json,
    *,
    status: int = 200,
    head_seq: int | None = None,
    is_replayed: bool = False,
) -> Response:
    """Return an answer made of plain values; integers may be of any size."""
    return text_answer(
        canonical_json(body), status=status, head_seq=head_seq, is_replayed=is_replayed
    )


def text_answer(
    text: str | bytes,
    *,
    status: int = 200,
    head_seq: int | None = None,
    is_replayed: bool = False,
) -> Response:
    """Return an answer that is JSON text already."""
    response = Response(text, status, media_type=JSON_TYPE)
    if head_seq is not None:
        response.headers["ETag"] = etag_of(head_seq)
    if is_replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return response


def etag_of(head_seq: int) -> str:
    """Return the ETag of a session whose head is at a seq."""
    return f'"{head_seq}"'
