"""Render contents in a provider's format, with ids the provider takes, and hash what was
rendered."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from operator import is_
from typing import Final

from app.core.compile.adk.ids import strip_adk_ids
from app.core.compile.inputs import (
    Breakpoint,
    CompileInput,
    CompileOptions,
    CompileResult,
    Format,
    HeadMarks,
    MarkerPlace,
    ReasoningCounts,
    RenderedContent,
    RenderedPart,
    Repair,
    Report,
    SettledItems,
    Thoughts,
)
from app.core.contents import (
    TOOL_PARTS,
    Content,
    Contents,
    FunctionCall,
    FunctionResponse,
    Part,
    PlacedPart,
)
from app.core.copying import replace
from app.core.fingerprint import chain_of, head_of

#: Providers take at least 64 characters.
_KEY_DIGITS: Final = 32
#: Tools are long, the same for all sessions of an agent, and asked for several times in a compile.
_KEPT_TOOLS: Final = 64


def render(
    contents: Contents, inputs: CompileInput, report: Report, *, system: str
) -> CompileResult:
    """Return the rendered contents with their fingerprint chain."""
    wire, settled = inputs.format, inputs.settled
    tools = tools_text(wire, inputs.options.tools)
    rendered = tuple([_rendered(content, wire) for content in with_emitted_ids(contents, inputs)])
    if not rendered and settled.until is None:
        report.warnings.append("empty_contents")
    head = head_of(format_name=wire.name, model=inputs.options.model, tools=tools, system=system)
    before = settled.chain or (head,)
    lasting, ephemeral, prefix_count = _hashed(rendered)
    chain = (*before[:-1], *chain_of(before[-1], lasting))
    prefix_count += settled.part_count
    return CompileResult(
        contents=contents,
        rendered=rendered,
        system=system,
        tools=tools,
        chain=chain,
        fingerprint=chain[-1],
        prefix_fingerprint=chain[prefix_count],
        sent_fingerprint=chain_of(chain[-1], ephemeral)[-1],
        prefix_count=prefix_count,
        repairs=by_seq((*settled.repairs, *report.repairs)),
        pending=tuple(report.pending),
        warnings=tuple(report.warnings),
        budget_actions=tuple(report.budget_actions),
        breakpoints=tuple(report.breakpoints),
        reasoning=_counts((*settled.thoughts, *report.thoughts)),
        cache_key=_cache_key(head, inputs),
        settled=settled,
        settled_marks=tuple(report.settled_marks),
        thoughts=tuple(report.thoughts),
        calls=tuple(report.calls),
        budgeted_tokens=report.budgeted_tokens,
    )


def _rendered(content: Content, wire: Format) -> RenderedContent:
    role, render_part = content.role, wire.render_part
    parts = [RenderedPart(placed, render_part(placed.part, role)) for placed in content.parts]
    return RenderedContent(content, tuple(parts))


@lru_cache(_KEPT_TOOLS)
def tools_text(wire: Format, tools: tuple[str, ...]) -> str:
    """Return the JSON text of the request's tools field, empty without tools."""
    return wire.render_tools(tools) if tools else ""


def by_seq(repairs: Iterable[Repair]) -> tuple[Repair, ...]:
    """Return the repairs in the order of their events; of one event as they were made."""
    return tuple(sorted(repairs, key=lambda repair: repair.seq or 0))


def _counts(thoughts: Iterable[Thoughts]) -> ReasoningCounts:
    counts = ReasoningCounts()
    for each in thoughts:
        counts.kept += each.kept
        counts.stripped += each.stripped
        counts.invalidated += each.invalidated
    return counts


def _cache_key(head: str, inputs: CompileInput) -> str:
    """Return the key under which a provider keeps requests that begin alike together.

    The key must not change within a session, so it is chosen by what never does: where tools and
    system text are worth caching, all sessions of an agent that have them share a key.
    """
    rule = inputs.rule
    if rule is None or not rule.cache.has_key or inputs.options.cache.breakpoints == "none":
        return ""
    tenant_id, session_id = inputs.cache_scope
    is_shared = inputs.calibration.tokens(inputs.fixed_tokens) >= rule.cache.min_tokens
    scope = (tenant_id, inputs.options.reader.agent, head, "" if is_shared else session_id)
    return sha256("\0".join(scope).encode()).hexdigest()[:_KEY_DIGITS]


def chained_parts(rendered: Sequence[RenderedContent]) -> list[tuple[str, RenderedPart]]:
    """Return the parts that the chain counts, in order, each with its role."""
    return [
        (content.role, part)
        for content in rendered
        for part in content.parts
        if not part.placed.ephemeral
    ]


def request_fields(
    result: CompileResult, wire: Format, options: CompileOptions, *, base_count: int | None = None
) -> Mapping[str, str]:
    """Return the provider's body fields with their cache markers, each as JSON text.

    Args:
        result: of the compile.
        wire: its format.
        options: its options.
        base_count: chained parts that the caller has: only what follows them is returned, and
            nothing when nothing does; None: everything is.
    """
    settled = result.settled
    if base_count is None:
        marks = _head_marks(result.breakpoints, result.cache_key)
        if settled.until is None:
            return wire.render_request(
                _marked(result.rendered, result, wire),
                system=result.system,
                tools=result.tools,
                model=options.model,
                marks=marks,
            )
        head = wire.render_request(
            (), system=result.system, tools=result.tools, model=options.model, marks=marks
        )
        return _joined(head, result, wire, options.model)
    rest = after(result.rendered, base_count - settled.part_count)
    if not rest:
        return {}
    # Tools and system are a part of the base, so the caller has them.
    return wire.render_request(
        _marked(rest, result, wire),
        system="",
        tools="",
        model=options.model,
        marks=HeadMarks(has_sent_tools=bool(result.tools)),
    )


def _joined(
    head: Mapping[str, str], result: CompileResult, wire: Format, model: str
) -> Mapping[str, str]:
    """Return the fields of a request whose beginning is settled."""
    settled = result.settled
    marks = dict(result.settled_marks)
    last = items_of(_marked(result.rendered, result, wire), wire, model)
    pieces = [
        head[wire.history_field][1:-1],
        *(_marked_items(items, marks, wire, model) for items in settled.items),
        last[wire.history_field],
    ]
    # Joined once: they are long.
    separated = [part for piece in pieces if piece for part in (",", piece)]
    history = "".join(["[", *separated[1:], "]"])
    # In the order in which a whole request has them.
    beside = {**settled.fields, **last}
    return {**head, wire.history_field: history} | {
        name: text for name, text in beside.items() if name not in head
    }


def items_of(contents: Sequence[RenderedContent], wire: Format, model: str) -> dict[str, str]:
    """Return what contents add to a request: the items of the history's array, with commas between,
    and the fields beside it that they call for."""
    fields = dict(wire.render_request(contents, system="", tools="", model=model))
    fields[wire.history_field] = fields[wire.history_field][1:-1]
    return fields


def _marked_items(
    items: SettledItems, marks: Mapping[MarkerPlace, str], wire: Format, model: str
) -> str:
    wanted = [(place, marks[place]) for place in items.places if place in marks]
    if not wanted or items.content is None:
        return items.text
    parts = list(items.content.parts)
    for place, ttl in wanted:
        part = parts[place.part]
        parts[place.part] = replace(part, text=wire.with_marker(part.text, ttl))
    marked = replace(items.content, parts=tuple(parts))
    return items_of((marked,), wire, model)[wire.history_field]


def _head_marks(breakpoints: Sequence[Breakpoint], key: str) -> HeadMarks:
    ttls = {each.block: each.ttl for each in breakpoints}
    return HeadMarks(tools=ttls.get("tools"), system=ttls.get("system"), key=key)


def _marked(
    rendered: Sequence[RenderedContent], result: CompileResult, wire: Format
) -> Sequence[RenderedContent]:
    """Return the contents with the markers in their texts; the chain never sees those."""
    if not result.breakpoints:
        return rendered
    return tuple(
        [
            replace(content, parts=tuple(_with_marker(part, wire) for part in content.parts))
            if _has_marker(content)
            else content
            for content in rendered
        ]
    )


def _has_marker(content: RenderedContent) -> bool:
    for part in content.parts:  # noqa: SIM110  a third of the time of `any`
        if part.placed.marker is not None:
            return True
    return False


def _with_marker(part: RenderedPart, wire: Format) -> RenderedPart:
    ttl = part.placed.marker
    return part if ttl is None else replace(part, text=wire.with_marker(part.text, ttl))


def after(rendered: Sequence[RenderedContent], count: int) -> tuple[RenderedContent, ...]:
    """Return what follows the first ``count`` chained parts; ephemeral parts always do.

    A turn that has grown is answered with its new parts alone: they belong at its end.
    """
    left: list[RenderedContent] = []
    skipped = 0
    for content in rendered:
        kept: list[RenderedPart] = []
        for part in content.parts:
            if part.placed.ephemeral or skipped >= count:
                kept.append(part)
            else:
                skipped += 1
        if kept:
            left.append(replace(content, parts=tuple(kept)))
    return tuple(left)


def is_turn_grown(result: CompileResult, base_count: int) -> bool:
    """Tell whether what follows the first chained parts begins within a turn, and goes on with
    it."""
    skipped = result.settled.part_count
    for content in result.rendered:
        has_skipped = False
        for part in content.parts:
            if part.placed.ephemeral or skipped >= base_count:
                return has_skipped
            skipped += 1
            has_skipped = True
    return False


def has_ephemeral(result: CompileResult) -> bool:
    """Tell whether the request has text that only this one has."""
    return any(part.placed.ephemeral for content in result.rendered for part in content.parts)


def _hashed(
    rendered: Sequence[RenderedContent],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], int]:
    """Return role and text of the parts that the chain counts, of the ephemeral ones, and how many
    of the chain's stand up to the content that ends the prefix."""
    lasting: list[tuple[str, str]] = []
    ephemeral: list[tuple[str, str]] = []
    prefix_count = 0
    for content in rendered:
        role = content.role
        for part in content.parts:
            (ephemeral if part.placed.ephemeral else lasting).append((role, part.text))
        if content.content.ends_prefix:
            prefix_count = len(lasting)
    return lasting, ephemeral, prefix_count


def with_emitted_ids(contents: Contents, inputs: CompileInput) -> Contents:
    """Give calls and responses the ids that are sent.

    Sessions reuse call ids, or have none, and providers want each to be there once. The later of
    two calls with one id gets the seq of its event added: what stands before a call decides its id,
    so it is the same in every compile that begins alike. Responses follow their calls in order, so
    they take theirs.
    """
    if inputs.options.preset == "adk":
        return strip_adk_ids(contents, inputs)
    emitted = _EmittedIds(inputs.settled.emitted_ids)
    waiting: list[str | None] = []
    result: list[Content] = []
    for content in contents:
        if not _has_tools(content):
            result.append(content)
            continue
        parts: list[PlacedPart] = []
        for placed in content.parts:
            part: Part = placed.part
            if isinstance(part, FunctionCall):
                call_id = _emitted_id(part, placed.seq or 0, emitted, inputs)
                waiting.append(call_id)
                part = _with_id(part, call_id)
            elif isinstance(part, FunctionResponse) and waiting:
                part = _with_id(part, waiting.pop(0))
            parts.append(placed if part is placed.part else replace(placed, part=part))
        is_same = all(map(is_, parts, content.parts))
        result.append(content if is_same else replace(content, parts=tuple(parts)))
    return tuple(result)


class _EmittedIds:
    """The ids of the calls so far."""

    def __init__(self, settled: frozenset[str]) -> None:
        self._settled = settled
        self._own: set[str] = set()

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._own or call_id in self._settled

    def add(self, call_id: str) -> None:
        self._own.add(call_id)


def _with_id(part: FunctionCall | FunctionResponse, call_id: str | None) -> Part:
    # Most calls keep their id, and copying parts is a sixth of what a compile costs.
    return part if part.id == call_id else replace(part, id=call_id)


def _has_tools(content: Content) -> bool:
    for placed in content.parts:  # noqa: SIM110  a third of the time of `any`
        if type(placed.part) in TOOL_PARTS:
            return True
    return False


def _emitted_id(
    part: FunctionCall, seq: int, emitted: _EmittedIds, inputs: CompileInput
) -> str | None:
    wire, ids = inputs.format, inputs.options.ids
    if not wire.needs_ids and (ids == "strip" or (ids == "auto" and not part.id)):
        return None
    call_id = wire.emit_id(part.id or f"call_{seq}")
    number = 0
    unique = call_id
    while unique in emitted:
        number += 1
        suffix = f"_{seq}" if number == 1 else f"_{seq}_{number}"
        unique = wire.emit_id(call_id + suffix)
    emitted.add(unique)
    return unique
