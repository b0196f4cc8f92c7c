"""Images as both of OpenAI's formats have them: a URL, and how closely it is to be looked at."""

from typing import Final

from app.core.canonical import Json
from app.core.contents import FileData, InlineData
from app.formats.fields import read_extra, read_string
from app.formats.media import UNKNOWN_IMAGE, mime_type_of, split_data_url

#: Beside ``auto``, which goes without saying.
_DETAILS: Final = frozenset({"high", "low", "original"})


def image_of(url: str, holder: dict[str, Json], pointer: str) -> dict[str, Json]:
    """Return the native part of an image.

    Args:
        url: of the image.
        holder: what may say the detail.
        pointer: of the holder.
    """
    inline = split_data_url(url)
    part: dict[str, Json]
    if inline is not None:
        part = {"inline_data": {"mime_type": inline[0], "data": inline[1]}}
    else:
        part = {"file_data": {"file_uri": url, "mime_type": mime_type_of(url) or UNKNOWN_IMAGE}}
    detail = holder.get("detail")
    if detail is not None and read_string(detail, f"{pointer}/detail") in _DETAILS:
        part["openai_item"] = {"detail": detail}
    return part


def image_detail(part: InlineData | FileData) -> str:
    """Return the detail of an image; empty when the provider is to choose."""
    detail = read_extra(part.extra, "openai_item").get("detail")
    return detail if isinstance(detail, str) and detail in _DETAILS else ""
