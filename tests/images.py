"""Images of any size, as few bytes as say so: what stands behind the head is not an image."""

import base64
from typing import Final

#: What a GIF, a PNG, ... begins with.
_PNG: Final = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR"


def base64_of(data: bytes) -> str:
    """Return the base64 of bytes."""
    return base64.b64encode(data).decode("ascii")


def png(width: int, height: int) -> str:
    """Return the head of a PNG."""
    return base64_of(_PNG + width.to_bytes(4) + height.to_bytes(4) + b"\x08\x02")


def gif(width: int, height: int) -> str:
    """Return the head of a GIF."""
    return base64_of(b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little"))


def jpeg(width: int, height: int, *, before: bytes = b"", frame: int = 0xC0) -> str:
    """Return the head of a JPEG.

    Args:
        width: in pixels.
        height: in pixels.
        before: segments in front of the frame.
        frame: kind of the frame: 0xC0 is baseline, 0xC2 progressive.
    """
    size = b"\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x03"
    return base64_of(b"\xff\xd8" + before + segment(frame, size))


def segment(kind: int, body: bytes) -> bytes:
    """Return a segment of a JPEG."""
    return bytes((0xFF, kind)) + (len(body) + 2).to_bytes(2) + body


def webp(kind: bytes, body: bytes) -> str:
    """Return the head of a WebP with its first chunk."""
    chunk = kind + len(body).to_bytes(4, "little") + body
    return base64_of(b"RIFF" + (len(chunk) + 4).to_bytes(4, "little") + b"WEBP" + chunk)
