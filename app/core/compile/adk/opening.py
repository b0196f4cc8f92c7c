"""What opens an isolation scope: the task that the reader was given (``spec/ADK.md`` B.9)."""

import json
from collections.abc import Iterable
from typing import Final

from app.core.compile.inputs import CompileInput
from app.core.contents import Content, Part, PlacedPart, Segment, Text
from app.core.events import Event
from app.core.tokens import fresh_tokens

#: A single-turn agent has no one to ask.
SINGLE_TURN_NUDGE: Final = (
    "Important: You will not receive any user replies or clarifications. "
    "Complete the task using only the information provided above."
)


def find_opening_args(events: Iterable[Event], isolation_scope: str | None) -> str | None:
    """Return the arguments of the first call that has the scope as its id and any arguments.

    The call stands outside the scope, where the reader does not see it.
    """
    if isolation_scope is None:
        return None
    for event in events:
        for call in event.calls:
            if call.id == isolation_scope and call.args != "{}":
                return call.args
    return None


def opening_content(inputs: CompileInput) -> Content | None:
    """Return the first content of a reader in an isolation scope; None outside of one."""
    options = inputs.options
    if options.reader.isolation_scope is None:
        return None
    parts: tuple[Part, ...] = options.user_content
    if inputs.opening_args is not None:
        # With blanks after commas and colons, as google-adk writes it.
        task = json.dumps(json.loads(inputs.opening_args), ensure_ascii=False)
        parts = (Text(text=task),)
    if not parts:
        return None
    if options.single_turn:
        parts = (*parts, Text(text=SINGLE_TURN_NUDGE))
    placed = [
        PlacedPart(
            part, segment=Segment.HISTORY, tokens=fresh_tokens(part, inputs.count, inputs.rule)
        )
        for part in parts
    ]
    return Content("user", tuple(placed))
