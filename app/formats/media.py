"""What the formats share about media: ``data:`` URLs, types by file name, text that is a file."""

import base64
import binascii
import re
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from app.core.contents import FileData, InlineData

_DATA_URL: Final = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),(.*)", re.DOTALL | re.IGNORECASE)

#: Images that Anthropic and OpenAI decode.
IMAGE_TYPES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
PDF: Final = "application/pdf"
#: What an image is when nothing says which kind.
UNKNOWN_IMAGE: Final = "image/*"

_MIME_BY_EXTENSION: Final = {
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "pdf": PDF,
    "png": "image/png",
    "webp": "image/webp",
}


def split_data_url(url: str) -> tuple[str, str] | None:
    """Return ``(mime type, base64 data)`` of a ``data:`` URL; None for any other URL."""
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return None
    mime_type, attributes, data = match.groups()
    if not attributes.lower().endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    return mime_type.lower() or "text/plain", data


def mime_type_of(uri: str) -> str | None:
    """Guess a media type from the file name at the end of a URI; None when it tells nothing."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        return None
    return _MIME_BY_EXTENSION.get(path.rpartition(".")[2].lower())


def bare_mime_type(part: InlineData | FileData) -> str:
    """Return a part's media type, lower case and without attributes; by its file's name where it
    does not say, empty where that tells nothing."""
    known = part.mime_type or (mime_type_of(part.file_uri) if isinstance(part, FileData) else None)
    return (known or "").lower().partition(";")[0].strip()


def is_image_or_document(part: InlineData | FileData) -> bool:
    """Tell whether it is an image, a PDF or a text that says something, here or on the web: what
    Messages and Responses take in a user message."""
    mime_type = bare_mime_type(part)
    if isinstance(part, FileData):
        is_known = mime_type.startswith("image/") or mime_type == PDF
        return is_known and is_web_url(part.file_uri)
    if not part.data:
        return False
    if mime_type.startswith("text/"):
        return bool((decode_text(part.data) or "").strip())
    return mime_type in IMAGE_TYPES or mime_type == PDF


def is_web_url(uri: str) -> bool:
    """Tell whether a provider can fetch the URI itself."""
    return uri.lower().startswith(("https://", "http://"))


def encode_text(text: str) -> str:
    """Return the base64 of a text file."""
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


def decode_text(data: str) -> str | None:
    """Return the text of a text file in base64; None when it is no text."""
    try:
        text = base64.b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return None if "\0" in text else text
