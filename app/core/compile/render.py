"""Render contents in a provider's format, with ids the provider takes, and hash what was
rendered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from app.core.compile.adk.ids import strip_adk_ids
from app.core.compile.inputs import (
    Breakpoint,
    CompileInput,
    CompileOptions,
    CompileResult,
    Format,
    HeadMarks,
    RenderedContent,
    RenderedPart,
    Report,
)
from app.core.contents import Content, Contents, FunctionCall, FunctionResponse, Part, PlacedPart
from app.core.fingerprint import chain_of, extend, head_of

#: Providers take at least 64 characters.
_KEY_DIGITS: Final = 32


def render(
    contents: Contents, inputs: CompileInput, report: Report, *, system: str
) -> CompileResult:
    """Return the rendered contents with their fingerprint chain."""
    wire = inputs.format
    tools = wire.render_tools(inputs.options.tools) if inputs.options.tools else ""
    rendered = tuple(
        RenderedContent(
            content,
            tuple(
                RenderedPart(placed, wire.render_part(placed.part, content.role))
                for placed in content.parts
            ),
        )
        for content in with_emitted_ids(contents, inputs)
    )
    head = head_of(format_name=wire.name, model=inputs.options.model, tools=tools, system=system)
    chain = chain_of(head, _hashed(rendered, ephemeral=False))
    prefix_count = _prefix_count(rendered)
    return CompileResult(
        contents=contents,
        rendered=rendered,
        system=system,
        tools=tools,
        chain=chain,
        fingerprint=chain[-1],
        prefix_fingerprint=chain[prefix_count],
        sent_fingerprint=extend(chain[-1], _hashed(rendered, ephemeral=True)),
        prefix_count=prefix_count,
        repairs=tuple(report.repairs),
        pending=tuple(report.pending),
        warnings=tuple(report.warnings),
        budget_actions=tuple(report.budget_actions),
        breakpoints=tuple(report.breakpoints),
        reasoning=report.reasoning,
        cache_key=_cache_key(head, inputs),
    )


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
    if base_count is None:
        return wire.render_request(
            _marked(result.rendered, wire),
            system=result.system,
            tools=result.tools,
            model=options.model,
            marks=_head_marks(result.breakpoints, result.cache_key),
        )
    rest = after(result.rendered, base_count)
    if not rest:
        return {}
    # Tools and system are a part of the base, so the caller has them.
    return wire.render_request(
        _marked(rest, wire),
        system="",
        tools="",
        model=options.model,
        marks=HeadMarks(has_sent_tools=bool(result.tools)),
    )


def _head_marks(breakpoints: Sequence[Breakpoint], key: str) -> HeadMarks:
    ttls = {each.block: each.ttl for each in breakpoints}
    return HeadMarks(tools=ttls.get("tools"), system=ttls.get("system"), key=key)


def _marked(rendered: Sequence[RenderedContent], wire: Format) -> tuple[RenderedContent, ...]:
    """Return the contents with the markers in their texts; the chain never sees those."""
    return tuple(
        replace(content, parts=tuple(_with_marker(part, wire) for part in content.parts))
        if any(part.placed.marker for part in content.parts)
        else content
        for content in rendered
    )


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


def _hashed(rendered: Sequence[RenderedContent], *, ephemeral: bool) -> list[tuple[str, str]]:
    return [
        (content.role, part.text)
        for content in rendered
        for part in content.parts
        if part.placed.ephemeral is ephemeral
    ]


def _prefix_count(rendered: Sequence[RenderedContent]) -> int:
    """Return the number of chained parts up to the content that ends the prefix."""
    count = prefix_count = 0
    for content in rendered:
        count += sum(not part.placed.ephemeral for part in content.parts)
        if content.content.ends_prefix:
            prefix_count = count
    return prefix_count


def with_emitted_ids(contents: Contents, inputs: CompileInput) -> Contents:
    """Give calls and responses the ids that are sent.

    Sessions reuse call ids, or have none, and providers want each to be there once. The later of
    two calls with one id gets the seq of its event added: what stands before a call decides its id,
    so it is the same in every compile that begins alike. Responses follow their calls in order, so
    they take theirs.
    """
    if inputs.options.preset == "adk":
        return strip_adk_ids(contents, inputs)
    emitted: set[str] = set()
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
        is_same = all(part is own for part, own in zip(parts, content.parts, strict=True))
        result.append(content if is_same else replace(content, parts=tuple(parts)))
    return tuple(result)


def _with_id(part: FunctionCall | FunctionResponse, call_id: str | None) -> Part:
    # Most calls keep their id, and copying parts is a sixth of what a compile costs.
    return part if part.id == call_id else replace(part, id=call_id)


def _has_tools(content: Content) -> bool:
    return any(isinstance(placed.part, FunctionCall | FunctionResponse) for placed in content.parts)


def _emitted_id(
    part: FunctionCall, seq: int, emitted: set[str], inputs: CompileInput
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
