"""Replace the bodies of elided events by stubs that say where the whole is.

    2 call(c1) | 3 result(c1, 9,000 characters) | 4 elision(3)
    2 call(c1) | 3 result(c1, "[9000 characters left out: expand seq 3 to read them]")

Which events are elided is the index's word. Runs after ``compaction_mask``, so that only what is
read is looked at, and before ``narration``, which must not quote what was left out.
"""

from app.core.compile.inputs import CompileInput, Report
from app.core.elision import elide
from app.core.events import Events


def elision(events: Events, inputs: CompileInput, report: Report) -> Events:  # noqa: ARG001
    """Return the events, elided ones as stubs."""
    if not inputs.index.elided:
        return events
    return tuple(elide(event, inputs.index, inputs.count) for event in events)
