"""Keep thinking that still stands on the prefix that produced it, strip what does not.

    [sum: 1-2] [m3: thought, text] [u4] [m5: thought, text]      m3 was compiled for u1 m2, m5 for
    [sum: 1-2] [m3: text]          [u4] [m5: thought, text]      all that stands before it here

Some models bind their thinking to everything that was sent before it, and refuse or drop a block
whose prefix has changed (``spec/PROVIDERS.md`` §0). Every reply may say for which chain it was
compiled, so the walk here makes the chain as it will be rendered and compares. What it strips is
no part of the chain of what follows, as it was none when that was compiled: so a reply is judged by
nothing but what stands before it, and what was sent for it stays the same in every later request.

An edit in front of a reply, a fold or an elision that came after it, changes its prefix for
certain, whatever it recorded. Then everything from the start up to it is stripped, for thinking may
be taken from the start of a history but not from between. A reply that recorded nothing is taken to
stand as long as no such edit, and no cut for the budget, is in front of it.

Models that do not bind keep all of it; of an unknown model only Gemini's format says so. Runs on
merged turns, because the chain counts what was put between them.
"""

from collections.abc import Iterator
from typing import Final

from app.core.compile.edits import newest_edit
from app.core.compile.inputs import CompileInput, Report, Thoughts
from app.core.compile.instruction import system_text
from app.core.compile.render import tools_text, with_emitted_ids
from app.core.contents import Content, Contents, PlacedPart, is_thinking
from app.core.copying import replace
from app.core.fingerprint import Chain, head_of

#: Formats of models that bind nothing.
_UNBOUND_FORMATS: Final = frozenset({"gemini", "native", "openai_chat"})


def reasoning(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents without the thinking that the model would refuse."""
    if not _has_thoughts(contents):
        return contents
    standing = dict(_standing(contents, inputs, report))
    strips = _is_bound(inputs) and inputs.options.thinking == "auto"
    result: list[Content] = []
    for number, content in enumerate(contents):
        thoughts = _thoughts(content)
        is_standing = standing.get(number, True)
        is_stripped = strips and not is_standing
        for placed in thoughts:
            report.thoughts.append(
                Thoughts(
                    placed.seq or 0,
                    kept=not is_stripped,
                    stripped=is_stripped,
                    invalidated=not is_standing,
                )
            )
            if is_stripped:
                report.repair("stale_thinking", placed.seq, "its prefix has changed since")
        if thoughts and is_stripped:
            content = _without_thoughts(content)  # noqa: PLW2901
        if content.parts:
            result.append(content)
    return _rejoined(result, inputs)


def _has_thoughts(contents: Contents) -> bool:
    for content in contents:
        for placed in content.parts:
            if placed.part.thought and _thoughts(content):
                return True
    return False


def _is_bound(inputs: CompileInput) -> bool:
    """Tell whether thinking is refused behind another prefix; of an unknown model it may be."""
    if inputs.options.preset == "adk":
        return False
    if inputs.rule is not None:
        return inputs.rule.is_reasoning_bound
    return inputs.format.name not in _UNBOUND_FORMATS


def _thoughts(content: Content) -> list[PlacedPart]:
    if content.role != "model":
        return []
    return [placed for placed in content.parts if is_thinking(placed.part)]


def _without_thoughts(content: Content) -> Content:
    return replace(content, parts=tuple(p for p in content.parts if not is_thinking(p.part)))


def _standing(
    contents: Contents, inputs: CompileInput, report: Report
) -> Iterator[tuple[int, bool]]:
    """Yield the number of each content that thinks, and whether its thinking stands."""
    edited_until = _last_edited(contents, inputs)
    if _is_bound(inputs) and any(p.ephemeral for content in contents for p in content.parts):
        # Such a text stood in front of the replies before too, and is gone from there.
        edited_until = len(contents)
    cut_seqs = [each.seq for each in report.budget_actions if each.seq is not None]
    strips = _is_bound(inputs) and inputs.options.thinking == "auto"
    wire = inputs.format
    chain = _chain(inputs)
    for number, content in enumerate(with_emitted_ids(contents, inputs)):
        is_standing = True
        if _thoughts(content):
            recorded = content.compiled_fingerprint
            is_standing = number > edited_until and (
                chain.value == recorded
                if recorded
                else not any(seq < (content.response_seq or 0) for seq in cut_seqs)
            )
            yield number, is_standing
        for placed in content.parts:
            is_left_out = strips and not is_standing and is_thinking(placed.part)
            if not placed.ephemeral and not is_left_out:
                chain.add(content.role, wire.render_part(placed.part, content.role))


def _chain(inputs: CompileInput) -> Chain:
    if inputs.settled.chain:
        return Chain(inputs.settled.chain[-1])
    options, wire = inputs.options, inputs.format
    tools = tools_text(wire, options.tools)
    system = system_text(options, inputs.state)
    return Chain(head_of(format_name=wire.name, model=options.model, tools=tools, system=system))


def _last_edited(contents: Contents, inputs: CompileInput) -> int:
    """Return the number of the last content that has a later edit in front of it, -1 for none."""
    last = -1
    newest = inputs.settled.newest_edit
    for number, content in enumerate(contents):
        if content.response_seq is not None and content.response_seq < newest:
            last = number
        newest = max(newest, newest_edit(content, inputs.index))
    return last


def _rejoined(contents: list[Content], inputs: CompileInput) -> Contents:
    """Join neighbours of one role again, where a turn between them was only thinking."""
    if not inputs.format.merges_turns or inputs.options.preset == "adk":
        return tuple(contents)
    joined: list[Content] = []
    for content in contents:
        if joined and joined[-1].role == content.role == "user":
            joined[-1] = replace(joined[-1], parts=(*joined[-1].parts, *content.parts))
        else:
            joined.append(content)
    return tuple(joined)
