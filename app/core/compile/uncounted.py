"""What the pipeline counts itself: text of others that no append counted as it is sent.

An instruction for the tail, what opens an isolation scope, joined transcriptions, what stays of
elided bodies, and under ``adk`` what is retold in Python's notation.
"""

from app.core.compile.inputs import CompileInput
from app.core.compile.instruction import dynamic_text
from app.core.compile.order import is_foreign
from app.core.elision import kept_characters
from app.core.events import Event, Events
from app.core.tokens import text_size


def uncounted_characters(events: Events, inputs: CompileInput) -> int:
    """Return about how many characters a compile will count: what decides where it runs.

    Raises:
        InvalidInputError: an instruction names a variable that the state does not hold.
    """
    options = inputs.options
    return (
        len(dynamic_text(options, inputs.state) or "")
        + text_size(options.user_content)
        + len(inputs.opening_args or "")
        + kept_characters(events, inputs.index)
        + sum(_transcribed(event) for event in events if event.role is None)
        + _retold(events, inputs)
    )


def _transcribed(event: Event) -> int:
    return len(event.input_transcription or "") + len(event.output_transcription or "")


def _retold(events: Events, inputs: CompileInput) -> int:
    reader = inputs.options.reader
    if inputs.options.preset != "adk" or not reader.agent:
        return 0
    foreign = (event for event in events if is_foreign(event.author, reader))
    return sum(text_size(event.parts) for event in foreign)
