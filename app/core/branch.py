"""Branch paths: who may see whom.

A branch is a dotted agent path. Segments are ``agent``, ``name@runId`` or ``tool@functionCallId``.
Whole segments are compared, so ``root.agent_10`` does not see ``root.agent_1``. The empty branch is
the session's root: everyone sees what stands there, and a reader who stands there sees everything.
"""

from collections.abc import Iterator


def segments(branch: str) -> tuple[str, ...]:
    """Return the segments of a branch, outermost first; none for the empty branch."""
    return tuple(branch.split(".")) if branch else ()


def line_up(branch: str) -> tuple[str, ...]:
    """Return the branch and all above it, nearest first, the empty branch last.

    >>> line_up("root.planner.search")
    ('root.planner.search', 'root.planner', 'root', '')
    """
    parts = segments(branch)
    return tuple(".".join(parts[:length]) for length in range(len(parts), -1, -1))


def is_visible_from(reader_branch: str, event_branch: str) -> bool:
    """Tell whether a reader on one branch sees an event on another."""
    if not reader_branch or not event_branch or reader_branch == event_branch:
        return True
    return reader_branch.startswith(event_branch + ".")


def tagged_segments(branch: str) -> Iterator[tuple[str, str]]:
    """Yield ``(name, id)`` for each segment of the form ``name@id``, split at the last ``@``."""
    for segment in segments(branch):
        name, at, tag = segment.rpartition("@")
        if at:
            yield name, tag
