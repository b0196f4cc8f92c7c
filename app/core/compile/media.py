"""Media of which a provider takes only so many in a request, and only so large ones."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.core.contents import FunctionResponse, InlineData, Part
from app.core.image_size import image_size

MediaKind: TypeAlias = Literal["document", "image"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimit:
    """What a provider takes of one kind."""

    #: In a request, wherever they stand.
    most: int
    #: Of one, decoded.
    max_bytes: int
    #: Of an image, in pixels; None: no limit.
    max_edge: int | None = None
    #: MIME types that may be larger.
    any_size: frozenset[str] = frozenset()


MediaLimits: TypeAlias = Mapping[MediaKind, MediaLimit]


@dataclass(frozen=True, slots=True)
class LimitedMedia:
    """How a format tells media apart, and what it takes of each kind."""

    #: The kind as which a part would be sent; None: there is no limit for it.
    kind_of: Callable[[Part], MediaKind | None]
    #: By the name of a model.
    limits_of: Callable[[str], MediaLimits]


def media_in(part: Part) -> tuple[Part, ...]:
    """Return the media that a part may hold: those of a result, else itself."""
    return part.media if isinstance(part, FunctionResponse) else (part,)


def count_media(parts: Iterable[Part], limited: LimitedMedia) -> Counter[MediaKind]:
    """Return how many media of each kind the parts hold."""
    kinds = (limited.kind_of(each) for part in parts for each in media_in(part))
    return Counter(kind for kind in kinds if kind is not None)


def size_bytes(data: str) -> int:
    """Return the size of what is encoded in padded base64."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def is_too_large(data: str, mime_type: str, limit: MediaLimit) -> bool:
    """Tell whether media in base64 is larger than a provider takes."""
    if mime_type not in limit.any_size and size_bytes(data) > limit.max_bytes:
        return True
    size = image_size(data) if limit.max_edge is not None else None
    return size is not None and limit.max_edge is not None and max(size) > limit.max_edge


def is_part_too_large(part: Part, limit: MediaLimit) -> bool:
    """Tell whether a part is media larger than a provider takes; by reference it has no size."""
    return isinstance(part, InlineData) and is_too_large(part.data, part.mime_type.lower(), limit)
