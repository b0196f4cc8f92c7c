"""The user's turn that is put where the provider needs one and the log has none: before a first and
after a last turn of the model, and between two that were produced separately."""

from collections.abc import Iterable
from typing import Final

from app.core.contents import Content, PlacedPart, Text

NUDGE_TEXT: Final = "Continue."
#: Its text, and what a turn takes besides.
NUDGE_TOKENS: Final = 6
NUDGE: Final = Content("user", (PlacedPart(Text(text=NUDGE_TEXT), tokens=NUDGE_TOKENS),))


def is_nudge(placed: PlacedPart) -> bool:
    """Tell whether the part is the user's turn that is put there, cache marker or not."""
    return placed.part is NUDGE.parts[0].part


def is_one_turn(first: Content, second: Content) -> bool:
    """Tell whether two neighbours are one turn: the user's, or of one response of the model."""
    if first.role != second.role:
        return False
    return first.role == "user" or (
        first.response_seq is not None and first.response_seq == second.response_seq
    )


def needs_nudge(previous: Content | None, content: Content) -> bool:
    """Tell whether one is put before a content; ``previous`` is None for the first."""
    if content.role != "model":
        return False
    return previous is None or (previous.role == "model" and not is_one_turn(previous, content))


def is_ephemeral(content: Content) -> bool:
    """Tell whether a content will be gone in the next request: it parts no turns."""
    for placed in content.parts:  # noqa: SIM110  a third of the time of `all`
        if not placed.ephemeral:
            return False
    return True


def count_nudges(contents: Iterable[Content], previous: Content | None) -> int:
    """Return how many are put before and between contents.

    Args:
        contents: in order.
        previous: what stands before them; None: nothing does.
    """
    count = 0
    for content in contents:
        if not is_ephemeral(content):
            count += needs_nudge(previous, content)
            previous = content
    return count
