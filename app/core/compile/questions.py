"""Where a user message begins among the contents: what a cut may come up to, and what it spares."""

from app.core.contents import Content, Contents, FunctionResponse, Segment


def is_question(content: Content) -> bool:
    """Tell whether a user message begins here: text or media of the log, not only results."""
    return content.role == "user" and any(
        placed.segment is Segment.HISTORY
        and placed.seq is not None
        and not isinstance(placed.part, FunctionResponse)
        for placed in content.parts
    )


def newest_question(contents: Contents) -> int:
    """Return the index of the newest user message; without one everything is the current turn."""
    for number in range(len(contents) - 1, -1, -1):
        if is_question(contents[number]):
            return number
    return 0
