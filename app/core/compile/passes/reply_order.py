"""Read a reply right after what was compiled for it.

    1 u | 2 u | 3 m(compiled_seq=1)      events, in log order
    1 u | 3 m | 2 u                      after the pass

The model that wrote 3 had not seen 2. Had 2 stayed in front of 3, every later request would differ
from the one that 3 answered, and the provider's cache and the reply's reasoning would be lost. The
place was decided at append, where no reply overtakes an earlier one of its lane and author.

Runs before anything looks at neighbours. Under ``adk`` the log's own order stays.
"""

from app.core.compile.inputs import CompileInput, Report
from app.core.compile.order import read_key
from app.core.events import Events


def reply_order(events: Events, inputs: CompileInput, report: Report) -> Events:  # noqa: ARG001
    """Return the events in the order in which the reader reads them."""
    if inputs.options.preset == "adk":
        return events
    reader = inputs.options.reader
    keys = [read_key(event, reader, inputs.index) for event in events]
    if keys == sorted(keys):
        return events
    return tuple(sorted(events, key=lambda event: read_key(event, reader, inputs.index)))
