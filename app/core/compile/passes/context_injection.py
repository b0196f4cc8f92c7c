"""Put in what is not in the log: the static instruction's media first, ephemeral text at the tail.

    [u] [m] [u]                              contents, oldest first
    [static media] [u] [m] [u] [dynamic]     after the pass

The dynamic instruction changes with the state, so it stands where nothing that could be cached
follows it. It is sent, but it is no part of the fingerprint chain. Under ``adk`` it stands before
the trailing run of plain user contents, or right after the media (``spec/ADK.md`` B.11).
"""

from app.core.compile.fitting import is_sent
from app.core.compile.inputs import CompileInput, Report
from app.core.compile.instruction import dynamic_content, static_contents
from app.core.contents import Content, Contents, FunctionResponse


def context_injection(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents with the instruction's contents in their places."""
    static = _static(inputs, report) if inputs.settled.until is None else ()
    dynamic = dynamic_content(inputs)
    if dynamic is None:
        return (*static, *contents)
    at = len(contents)
    if inputs.options.preset == "adk":
        # google-adk puts all that the instructions say in one place.
        at = 0 if static else _before_last_question(contents)
    return (*static, *contents[:at], dynamic, *contents[at:])


def _static(inputs: CompileInput, report: Report) -> Contents:
    """Return the static instruction's media, as far as the format has a place for them."""
    return tuple(
        content
        for content in static_contents(inputs)
        if all(is_sent(p.part, content.role, p.seq, inputs, report) for p in content.parts)
    )


def _before_last_question(contents: Contents) -> int:
    """Return the index before the trailing run of user contents without function responses."""
    at = len(contents)
    while at and _is_plain_user(contents[at - 1]):
        at -= 1
    return at


def _is_plain_user(content: Content) -> bool:
    return content.role == "user" and not any(
        isinstance(placed.part, FunctionResponse) for placed in content.parts
    )
