"""Drop the events undone by a rewind, and the markers.

    1 u | 2 m | 3 u | 4 m | 5 rewind(from 3) | 6 u      events, oldest first
    1 u | 2 m |                              | 6 u      after the pass

Which spans are undone is the index's word (:mod:`app.core.index`): newest rewind first, so a rewind
inside a rewound span has no effect. Of the markers only the active folds stay: their sections are
read in place of what they cover. Runs first: a rewound event must not influence any later decision.
"""

from app.core.compile.inputs import CompileInput, Report
from app.core.events import Events
from app.core.ranges import contains


def rewind(events: Events, inputs: CompileInput, report: Report) -> Events:  # noqa: ARG001
    """Return the events that survive every rewind, in log order, and the active folds."""
    index = inputs.index
    active = {section.fold_seq for section in index.sections}
    if not index.rewound and all(event.marker is None for event in events):
        return events
    return tuple(
        event
        for event in events
        if (event.seq in active if event.marker else not contains(index.rewound, event.seq))
    )
