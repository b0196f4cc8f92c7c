"""The agent's instructions: what goes into the system text, and what rides in the contents.

``spec/ADK.md`` B.12. The system text is a part of what the provider caches, so with a static
instruction the one that changes with the state stands among the contents instead, marked as an
instruction.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app.core.canonical import Json, clean_text
from app.core.compile.inputs import CompileInput, CompileOptions, Instruction
from app.core.compile.quoting import ELIDED_MARKER
from app.core.contents import (
    Content,
    Contents,
    FileData,
    InlineData,
    Part,
    PlacedPart,
    Segment,
    Text,
)
from app.core.errors import InvalidInputError
from app.core.tokens import fresh_tokens

BEGIN_INSTRUCTION: Final = "<<<BEGIN_SYSTEM_INSTRUCTION>>>"
END_INSTRUCTION: Final = "<<<END_SYSTEM_INSTRUCTION>>>"
_PREAMBLE: Final = (
    f"The text between {BEGIN_INSTRUCTION} and {END_INSTRUCTION} below is your own system "
    "instruction for this turn and carries the current session state. It is addressed to you. "
    "Nothing between those two markers was said by the user, so do not answer it or continue it as "
    "though it were their turn. Anything the user actually said appears outside the markers, and a "
    "real user turn may follow immediately after the end marker."
)

# A name in braces, one pair or more; after `$`, `{` or a backslash it is meant literally.
_VARIABLE: Final = re.compile(r"(?<![\$\{\\]){+[^{}]*}+")
_STATE_PREFIXES: Final = ("app:", "user:", "temp:")


def system_text(options: CompileOptions, state: Mapping[str, Json]) -> str:
    """Return the system text: the pieces that are there, a blank line between two.

    One of nothing but white space says nothing, and providers refuse it: it is empty.

    Raises:
        InvalidInputError: an instruction names a variable that the state does not hold.
    """
    text = "\n\n".join(piece for piece in _system_pieces(options, state) if piece)
    return "" if text.isspace() else text


def _system_pieces(options: CompileOptions, state: Mapping[str, Json]) -> Iterator[str]:
    instruction = options.instruction
    yield options.system
    yield inject_state(instruction.global_, state, pointer="/instruction/global")
    if _has_static(instruction):
        yield instruction.static
        yield from (reference for reference, _, _ in _references(instruction))
    else:
        yield _dynamic(instruction, state)
    yield _identity(options)


def _has_static(instruction: Instruction) -> bool:
    return bool(instruction.static or instruction.static_parts)


def _dynamic(instruction: Instruction, state: Mapping[str, Json]) -> str:
    return inject_state(instruction.dynamic, state, pointer="/instruction/dynamic")


def _identity(options: CompileOptions) -> str:
    """Return who the agent is; only for callers who leave the instructions to us."""
    agent, instruction = options.reader.agent, options.instruction
    if not agent or options.single_turn or instruction == Instruction():
        return ""
    said = f'You are an agent. Your internal name is "{agent}".'
    if instruction.description:
        said += f' The description about you is "{instruction.description}".'
    return said


def dynamic_content(inputs: CompileInput) -> Content | None:
    """Return the instruction as an ephemeral content; None unless there is a static one beside it.

    Raises:
        InvalidInputError: the instruction names a variable that the state does not hold.
    """
    told = dynamic_text(inputs.options, inputs.state)
    if told is None:
        return None
    return Content("user", (_placed(Text(text=told), inputs, ephemeral=True),))


def dynamic_text(options: CompileOptions, state: Mapping[str, Json]) -> str | None:
    """Return what the ephemeral content says; None unless there is a static instruction beside it.

    Raises:
        InvalidInputError: the instruction names a variable that the state does not hold.
    """
    instruction = options.instruction
    if not instruction.dynamic or not _has_static(instruction):
        return None
    text = _dynamic(instruction, state)
    for marker in (BEGIN_INSTRUCTION, END_INSTRUCTION):
        text = text.replace(marker, ELIDED_MARKER)
    return f"{_PREAMBLE}\n{BEGIN_INSTRUCTION}\n{text}\n{END_INSTRUCTION}"


def static_contents(inputs: CompileInput) -> Contents:
    """Return the media that the static instruction refers to, one user content each."""
    return tuple(
        Content("user", (_placed(Text(text=introduction), inputs), _placed(part, inputs)))
        for _, introduction, part in _references(inputs.options.instruction)
        if not isinstance(part, Text)
    )


def _references(instruction: Instruction) -> Iterator[tuple[str, str, Part]]:
    """Yield for each part what the system text says, what its content opens with, and the part."""
    number = 0
    for part in instruction.static_parts:
        match part:
            case Text(text=text):
                yield text, "", part
                continue
            case InlineData(display_name=name, mime_type=mime_type):
                kind, reference = "inline", f"inline_data_{number}"
                noun = "inline binary data"
                details = [_named(name), _labelled("type", mime_type)]
            case FileData(display_name=name, file_uri=uri, mime_type=file_type):
                kind, reference = "file", f"file_data_{number}"
                noun = "file data"
                details = [_named(name), _labelled("URI", uri), _labelled("type", file_type)]
            case _:
                continue
        number += 1
        described = ", ".join(detail for detail in details if detail)
        suffix = f" ({described})" if described else ""
        yield (
            f"[Reference to {noun}: {reference}{suffix}]",
            f"Referenced {kind} data: {reference}",
            part,
        )


def _named(name: str | None) -> str:
    return f"'{name}'" if name else ""


def _labelled(label: str, value: str | None) -> str:
    return f"{label}: {value}" if value else ""


def _placed(part: Part, inputs: CompileInput, *, ephemeral: bool = False) -> PlacedPart:
    tokens = fresh_tokens(part, inputs.count, inputs.rule)
    return PlacedPart(part, segment=Segment.INJECTED, ephemeral=ephemeral, tokens=tokens)


def inject_state(text: str, state: Mapping[str, Json], *, pointer: str = "") -> str:
    """Return the text with ``{name}`` replaced by the state's value, ``{name?}`` by "" if absent.

    What is no name of a variable stays as it is written, and so does ``{artifact.name}``.

    Args:
        pointer: where the text stands in the request, for the error.

    Raises:
        InvalidInputError: the state holds no such variable.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match.group().strip("{}").strip()
        is_optional = name.endswith("?")
        name = name.removesuffix("?")
        if not _is_variable(name):
            return match.group()
        if name in state:
            value = state[name]
            return "" if value is None else clean_text(str(value))
        if is_optional:
            return ""
        raise InvalidInputError(f"the state holds no variable {name!r}", pointer=pointer)

    return _VARIABLE.sub(value_of, text) if "{" in text else text


def _is_variable(name: str) -> bool:
    prefix, colon, rest = name.partition(":")
    return rest.isidentifier() if f"{prefix}{colon}" in _STATE_PREFIXES else name.isidentifier()
