"""What a request has no place for is left out, and reported."""

from typing import Final

from app.core.compile.inputs import CompileInput, Report, Thoughts
from app.core.contents import Opaque, Part, Role, is_blank, is_thinking

#: The formats of google-adk's own contents: under ``adk`` they are sent as they are.
_ADK_FORMATS: Final = frozenset({"gemini", "native"})


def is_sent(part: Part, role: Role, seq: int | None, inputs: CompileInput, report: Report) -> bool:
    """Tell whether the part is sent; report what is lost without the caller having asked for it.

    Args:
        part: the part.
        role: of the turn that it would stand in.
        seq: of its event; None: it is not of the log.
        inputs: of the compile.
        report: is told what is left out.
    """
    wire, options = inputs.format, inputs.options
    if options.thinking == "strip" and is_thinking(part):
        report.thoughts.append(Thoughts(seq or 0, stripped=1))
        return False
    if options.preset == "adk":
        if wire.name in _ADK_FORMATS:
            return True
    elif wire.refuses_blank_text and is_blank(part):
        return False
    if wire.says(part, role):
        if isinstance(part, Opaque) and not wire.keeps(part, role):
            detail = f"{wire.name} does not take this {part.type}: its text is sent"
            report.repair("unsupported_part", seq, detail)
        return True
    if is_thinking(part):
        report.thoughts.append(Thoughts(seq or 0, stripped=1))
    else:
        kind = type(part).__name__
        report.repair("unsupported_part", seq, f"{wire.name} has no place for {kind}")
    return False
