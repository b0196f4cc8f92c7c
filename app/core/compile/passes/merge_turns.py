"""Join neighbours of one role, and keep the model's turns apart where the provider wants a user's
between.

    [u: a] [u: b] [m: c] [m: d, same response] [m: e, another response]      before [u: a, b] [m: c,
    d] [u: Continue.] [m: e]                                after, for an alternating format

Parts are only ever put side by side, never joined, so a signed part stays as it was signed. Two
model contents that were produced separately are not one turn: a provider that wants alternation
gets a user text between them, before a first and after a last one. The text after a last one is the
very text that will stand between it and the reply, so the prefix holds. Ephemeral text does not
count: it will be gone.

Where the provider refuses a turn that ends in a thought, what a response that broke off had thought
last is left out.

Runs after everything that adds contents. Under ``adk`` nothing is merged and no text is added.
"""

from app.core.compile.inputs import CompileInput, Report, Thoughts
from app.core.compile.nudge import NUDGE, is_ephemeral, is_one_turn, needs_nudge
from app.core.contents import Content, Contents, PlacedPart, is_thinking
from app.core.copying import replace


def merge_turns(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents as the turns that the format wants."""
    if inputs.options.preset == "adk":
        return contents
    if inputs.format.refuses_thought_last:
        contents = _without_last_thoughts(contents, report)
    if inputs.format.needs_alternation and inputs.options.tail_nudge:
        contents = _nudged(contents, inputs.settled.last_content, report)
    if not inputs.format.merges_turns:
        return _joined_responses(contents)
    merged: list[Content] = []
    for content in contents:
        if merged and is_one_turn(merged[-1], content):
            merged[-1] = _join(merged[-1], content)
        else:
            merged.append(content)
    return tuple(merged)


def _without_last_thoughts(contents: Contents, report: Report) -> Contents:
    """Leave out the thoughts that nothing of their response follows."""
    kept: list[Content] = []
    dropped: list[PlacedPart] = []
    for content in reversed(contents):
        parts = content.parts
        if content.role == "model" and not (kept and is_one_turn(content, kept[-1])):
            while parts and is_thinking(parts[-1].part):
                dropped.append(parts[-1])
                parts = parts[:-1]
        if parts:
            kept.append(replace(content, parts=parts))
    for placed in reversed(dropped):
        report.thoughts.append(Thoughts(placed.seq or 0, stripped=1))
        report.repair("thought_last", placed.seq, "a thought that nothing follows")
    return tuple(reversed(kept))


def _joined_responses(contents: Contents) -> Contents:
    """Join only what the model said in one response."""
    merged: list[Content] = []
    for content in contents:
        if merged and content.role == "model" and is_one_turn(merged[-1], content):
            merged[-1] = _join(merged[-1], content)
        else:
            merged.append(content)
    return tuple(merged)


def _nudged(contents: Contents, previous: Content | None, report: Report) -> Contents:
    """Put a user text before a first, after a last, and between separately produced model
    contents."""
    nudged: list[Content] = []
    for content in contents:
        if is_ephemeral(content):
            continue
        if needs_nudge(previous, content):
            nudged.append(NUDGE)
            report.repair("tail_nudge", content.parts[0].seq, "a user text before the model's turn")
        nudged.append(content)
        previous = content
    if previous is not None and previous.role == "model":
        nudged.append(NUDGE)
        report.repair("tail_nudge", previous.parts[0].seq, "a user text after the model's turn")
    return (*nudged, *(content for content in contents if is_ephemeral(content)))


def _join(first: Content, second: Content) -> Content:
    return replace(first, parts=(*first.parts, *second.parts))
