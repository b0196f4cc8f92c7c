"""Mark the cacheable prefix: everything before the last run of user contents.

    [u] [m] [u] [m] | [u: result] [u]      the bar is the mark

What follows the newest model turn is still open; what stands before it has been sent once and will
be sent again, unchanged, with every later request.
"""

from dataclasses import replace

from app.core.compile.inputs import CompileInput, Report
from app.core.contents import Contents


def mark_prefix(
    contents: Contents,
    inputs: CompileInput,  # noqa: ARG001
    report: Report,  # noqa: ARG001
) -> Contents:
    """Return the contents with the last one of the prefix marked, if there is a prefix."""
    for number in range(len(contents) - 1, -1, -1):
        if contents[number].role == "model":
            marked = replace(contents[number], ends_prefix=True)
            return (*contents[:number], marked, *contents[number + 1 :])
    return contents
