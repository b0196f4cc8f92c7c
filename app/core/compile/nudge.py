"""The user's turn that is put where the provider needs one and the log has none."""

from typing import Final

from app.core.contents import Content, PlacedPart, Text

NUDGE_TEXT: Final = "Continue."
#: Its text, and what a turn takes besides.
NUDGE_TOKENS: Final = 6
NUDGE: Final = Content("user", (PlacedPart(Text(text=NUDGE_TEXT), tokens=NUDGE_TOKENS),))


def is_nudge(placed: PlacedPart) -> bool:
    """Tell whether the part is the user's turn that is put there, cache marker or not."""
    return placed.part is NUDGE.parts[0].part
