"""Opaque cursors, bound to the order and the filters of the page they continue."""

import base64
import binascii
import hashlib
from typing import Any, Final

import orjson

from app.core.errors import InvalidInputError

_DIGEST_CHARACTERS: Final = 16


def make_cursor(position: list[Any], binding: dict[str, Any]) -> str:
    """Return a cursor to what follows a position.

    Args:
        position: where the page ended.
        binding: order and filters; the cursor is of no use with others.
    """
    body = orjson.dumps([_digest(binding), *position])
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def read_cursor(cursor: str, binding: dict[str, Any], *, pointer: str) -> list[Any]:
    """Return the position of a cursor.

    Raises:
        InvalidInputError: it is no cursor, or one of another list.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        digest, *position = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, TypeError):
        raise InvalidInputError("not a cursor", pointer=pointer) from None
    if digest != _digest(binding):
        detail = "the cursor belongs to another order or other filters"
        raise InvalidInputError(detail, pointer=pointer)
    return list(position)


def _digest(binding: dict[str, Any]) -> str:
    text = orjson.dumps(binding, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS]
