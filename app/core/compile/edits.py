"""Which marker made a part what it is."""

from app.core.contents import Content, PlacedPart, Segment
from app.core.index import Index


def newest_edit(content: Content, index: Index) -> int:
    """Return the seq of the newest marker that made a part of the content what it is, 0 for
    none."""
    return max((_edit_seq(placed, index) for placed in content.parts), default=0)


def _edit_seq(placed: PlacedPart, index: Index) -> int:
    if placed.seq is None:
        return 0
    if placed.segment is Segment.SUMMARIES:
        return placed.seq
    elided = index.elision_of(placed.seq)
    return elided.marker_seq if elided else 0
