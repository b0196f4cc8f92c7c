"""Two compiles side by side, in words for a person: where they part, why, and what each costs.

From content 0 on the two differ: a compaction (event 4) took effect. There a has the text
"hello" (event 1), b has the summary "in brief" (event 4). a takes 12 tokens, b 5 (7 fewer). ...
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.core.canonical import json_string
from app.core.compile.breaks import Difference
from app.core.compile.inputs import CompileOptions, RenderedPart
from app.core.contents import (
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Segment,
    Text,
)

#: The most of a text that is quoted.
EXCERPT_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    options: CompileOptions
    format_name: str
    system: str
    #: Names of its tools, in order.
    tool_names: tuple[str, ...]
    #: By its model's count.
    tokens: int
    #: Of the input, with what the provider should have cached; None: no price is known.
    price: float | None


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two compiles differ."""

    reason: str
    #: The event, where one is the cause.
    seq: int | None = None


_CAUSES: Final[Mapping[str, str]] = {
    "compaction": "a compaction{at} took effect",
    "elision": "an elision{at} took effect",
    "rewind": "a rewind{at} took effect",
    "pin": "what is pinned changed{at}",
    "budget": "one was cut for its budget, or the other in another way",
    "overlap": "another response landed in between{at}",
    "append": "one has what was appended later{from_}",
}


def head_words(a: Side, b: Side, differing: str) -> tuple[Cause, str]:
    """Return why two compiles differ before their first content, and the sentence that says it.

    Args:
        a: the first.
        b: the second.
        differing: what the fingerprints say differs: ``model``, ``tools`` or ``system``.
    """
    if a.format_name != b.format_name:
        return Cause("option"), (
            f"The two are written in different formats, {a.format_name} and {b.format_name}:"
            " nothing that one leaves in a cache serves the other."
        )
    if differing == "model":
        return Cause("model"), (
            f"The two are for different models, {_named(a.options.model)} and"
            f" {_named(b.options.model)}: a cache of one is of no use to the other."
        )
    if differing == "tools":
        return Cause("tools"), f"The tools differ, and with them all that follows: {_tools(a, b)}."
    return Cause("system"), (
        "The system text differs, and with it all that follows:"
        f" a has {_around(a.system, b.system)}, b has {_around(b.system, a.system)}."
    )


def difference_words(difference: Difference, cause: Cause, block: int, changed: str) -> str:
    """Return the sentences on what differs in the contents.

    Args:
        difference: where they part.
        cause: why.
        block: the number of that content, from 0.
        changed: names of the options that differ; empty: none do.
    """
    at = "" if cause.seq is None else f" (event {cause.seq})"
    from_ = "" if cause.seq is None else f" (from event {cause.seq} on)"
    why = _CAUSES.get(cause.reason, cause.reason).format(at=at, from_=from_)
    if cause.reason == "option":
        why = f"their options differ ({changed})" if changed else "their options differ"
    return (
        f"From content {block} on the two differ: {why}."
        f" There a has {_part(difference.first)}, b has {_part(difference.second)}."
    )


def cost_words(a: Side, b: Side, currency: str) -> str:
    """Return the sentence on what each takes and costs."""
    said = f"a takes {a.tokens:,} tokens, b {b.tokens:,} ({_more(b.tokens - a.tokens)})."
    if a.price is None or b.price is None:
        return said
    # One format spec for both: what differs little is told with as many digits.
    prices = f"a costs {a.price:.6f} {currency}, b {b.price:.6f}"
    return f"{said} With what the provider should have in its cache, {prices}."


def changed_options(a: CompileOptions, b: CompileOptions) -> str:
    """Return the names of the options that differ, joined."""
    names = [each for each in a.__struct_fields__ if getattr(a, each) != getattr(b, each)]
    return ", ".join("agent, branch or scope" if name == "reader" else name for name in names)


def _more(tokens: int) -> str:
    if not tokens:
        return "the same"
    return f"{abs(tokens):,} {'more' if tokens > 0 else 'fewer'}"


def _named(model: str) -> str:
    return model or "one that is not named"


def _tools(a: Side, b: Side) -> str:
    only_a = [name for name in a.tool_names if name not in b.tool_names]
    only_b = [name for name in b.tool_names if name not in a.tool_names]
    said = [
        f"only {side} has {', '.join(names)}"
        for side, names in (("a", only_a), ("b", only_b))
        if names
    ]
    return "; ".join(said) or "the same names, described or ordered differently"


def _around(text: str, other: str) -> str:
    """Quote a text from shortly before where it parts from another."""
    if not text:
        return "none"
    shared = next(
        (n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two),
        min(len(text), len(other)),
    )
    start = max(0, shared - EXCERPT_CHARACTERS // 4)
    return ("..." if start else "") + _quoted(text[start:])


def _part(part: RenderedPart | None) -> str:
    """Return what a part is, in words; nothing where a side has ended."""
    if part is None:
        return "nothing more"
    placed = part.placed
    if placed.segment is Segment.SUMMARIES:
        said = _said(placed.part).replace("the text", "the summary", 1)
    elif placed.seq is None:
        return f"{_said(placed.part)}, which the compiler put in"
    else:
        said = _said(placed.part)
    return said if placed.seq is None else f"{said} (event {placed.seq})"


def _said(part: Part) -> str:
    match part:
        case Text(text=text):
            return f"the thinking {_quoted(text)}" if part.thought else f"the text {_quoted(text)}"
        case FunctionCall(name=name, args=args):
            return f"the call of {name} with {_quoted(args)}"
        case FunctionResponse(name=name, response=response, response_text=text):
            return f"the result of {name} {_quoted(text or response)}"
        case InlineData(mime_type=mime_type):
            return f"a medium of type {mime_type}"
        case FileData(file_uri=uri):
            return f"the file {_quoted(uri)}"
        case Opaque(provider=provider, type=kind):
            return f"a block {kind} of {provider}"
        case _:
            return "code or what it gave"


def _quoted(text: str) -> str:
    cut = text if len(text) <= EXCERPT_CHARACTERS else text[:EXCERPT_CHARACTERS] + "..."
    return json_string(cut)
