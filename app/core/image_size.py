"""How large an image is, read from the first bytes of its file: nothing is decoded.

Knows PNG, GIF, WebP and JPEG, which are what the providers take.
"""

import base64
import binascii
from typing import Final, TypeAlias

Size: TypeAlias = tuple[int, int]

#: Of the encoded file; a JPEG has its size behind whatever its camera wrote in front.
_HEAD_CHARACTERS: Final = 131_072
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG_MARKER: Final = 0xFF
#: Frames of a JPEG that hold its size: all of SOF0 to SOF15 but the tables between them.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_size(data: str) -> Size | None:
    """Return width and height in pixels of an image in base64; None when they cannot be read."""
    head = data[:_HEAD_CHARACTERS]
    try:
        start = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    size = _png(start) or _gif(start) or _webp(start) or _jpeg(start)
    return size if size and size[0] > 0 and size[1] > 0 else None


def _number(data: bytes, at: int, length: int, order: str = "big") -> int:
    return int.from_bytes(data[at : at + length], "big" if order == "big" else "little")


def _png(data: bytes) -> Size | None:
    if not data.startswith(_PNG):
        return None
    return _number(data, 16, 4), _number(data, 20, 4)


def _gif(data: bytes) -> Size | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return _number(data, 6, 2, "little"), _number(data, 8, 2, "little")


def _webp(data: bytes) -> Size | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    match data[12:16]:
        case b"VP8X":
            return 1 + _number(data, 24, 3, "little"), 1 + _number(data, 27, 3, "little")
        case b"VP8L":
            bits = _number(data, 21, 4, "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = _number(data, 26, 2, "little"), _number(data, 28, 2, "little")
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg(data: bytes) -> Size | None:
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == _JPEG_MARKER:
        kind = data[at + 1]
        if kind in _JPEG_FRAMES:
            return _number(data, at + 7, 2), _number(data, at + 5, 2)
        # Fill bytes stand alone; everything else says how long it is.
        at += 1 if kind == _JPEG_MARKER else 2 + max(2, _number(data, at + 2, 2))
    return None
