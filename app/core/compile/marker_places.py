"""Where among the contents a marker of the provider's cache may stand."""

from collections.abc import Iterator

from app.core.compile.inputs import CompileInput, MarkerPlace
from app.core.contents import Content, Contents, FunctionResponse, PlacedPart, Segment


def marker_places(contents: Contents, inputs: CompileInput) -> Iterator[MarkerPlace]:
    """Yield the parts of the contents after what is settled, in the order in which they are
    sent."""
    wire, settled = inputs.format, inputs.settled
    tokens, blocks = inputs.fixed_tokens + settled.placed_tokens, settled.part_count
    for number, content in enumerate(contents, start=settled.content_count):
        for index, placed in _as_sent(content):
            if placed.ephemeral:
                continue
            tokens += placed.tokens
            blocks += 1
            if wire.takes_marker(placed.part, content.role):
                is_summary = placed.segment is Segment.SUMMARIES
                yield MarkerPlace(number, index, tokens, blocks, is_summary)


def _as_sent(content: Content) -> list[tuple[int, PlacedPart]]:
    """Return the parts in the order in which they are sent: results come first in their turn."""
    return sorted(
        enumerate(content.parts),
        key=lambda pair: (
            content.role == "user" and not isinstance(pair[1].part, FunctionResponse),
            pair[0],
        ),
    )
