"""Mark the cacheable prefix, and the places up to which the provider is asked to cache.

    [u] [m] [u] [m] | [u: result] [u]      the bar ends the prefix

What follows the newest model turn is still open; what stands before it has been sent once and will
be sent again, unchanged, with every later request.

Breakpoints, in the order in which the provider reads them (``spec/PROVIDERS.md`` §6), each only
where everything up to it is worth caching for the model:

    1  the system text, or the tools without one     shared by all sessions of the agent
    2  the newest summary                            stands until the next fold
    3  where the request before this one ended       only if it lies further back than the provider
                                                     looks from the last one
    4  the last part of this request                 grows with the session

Where the provider sets the last one itself only the first two are put. They are part of the request
but not of the chain: where a marker stands changes nothing of what is cached before it.
"""

from typing import Final

from app.core.compile.inputs import Breakpoint, CompileInput, MarkerPlace, Report
from app.core.compile.marker_places import marker_places
from app.core.contents import Contents
from app.core.copying import replace
from app.core.model_rules import CacheRule

#: Of the blocks that the provider looks back, so many may lie between before a marker is needed:
#: a turn with tools adds several at once.
_LOOKBACK_SHARE: Final = 0.75


def mark_prefix(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    """Return the contents with the last one of the prefix marked, if any, and the breakpoints."""
    contents = _with_breakpoints(contents, inputs, report)
    for number in range(len(contents) - 1, -1, -1):
        if contents[number].role == "model":
            marked = replace(contents[number], ends_prefix=True)
            return (*contents[:number], marked, *contents[number + 1 :])
    return contents


def _with_breakpoints(contents: Contents, inputs: CompileInput, report: Report) -> Contents:
    rule = inputs.rule
    if rule is None or inputs.options.cache.breakpoints == "none":
        return contents
    cache = rule.cache
    if cache.kind not in ("markers", "breakpoints") or inputs.format.name in ("gemini", "native"):
        return contents
    ttl = inputs.options.cache.ttl if inputs.options.cache.ttl in cache.ttls_s else "5m"
    left = cache.max_markers
    head = _head_block(inputs, cache)
    if head is not None and left and _is_worth(inputs.fixed_tokens, inputs, cache):
        report.breakpoints.append(Breakpoint(head, inputs.fixed_tokens, ttl))
        left -= 1
    chosen = _chosen(contents, inputs, cache)[:left]
    settled_count = inputs.settled.content_count
    for place in chosen:
        report.breakpoints.append(Breakpoint(place.content, place.tokens, ttl))
        if place.content < settled_count:
            report.settled_marks.append((place, ttl))
    return _marked(contents, [p for p in chosen if p.content >= settled_count], settled_count, ttl)


def _head_block(inputs: CompileInput, cache: CacheRule) -> str | None:
    """Return what the head ends with, None where no marker is taken behind it."""
    if inputs.system_tokens and inputs.format.name != "openai_responses":
        return "system"
    has_tools = bool(inputs.tools_tokens) and cache.marks_tools and cache.kind == "markers"
    return "tools" if has_tools else None


def _is_worth(tokens: int, inputs: CompileInput, cache: CacheRule) -> bool:
    return inputs.calibration.tokens(tokens) >= cache.min_tokens


def _chosen(contents: Contents, inputs: CompileInput, cache: CacheRule) -> list[MarkerPlace]:
    """Return where markers stand among the contents, in order."""
    places = list(marker_places(contents, inputs))
    summary = next((place for place in reversed(places) if place.is_summary), None)
    wanted: list[MarkerPlace | None] = [summary or inputs.settled.summary_place]
    if cache.kind == "markers":
        last = places[-1] if places else inputs.settled.last_place
        wanted += [_previous_end(contents, places, last, inputs, cache), last]
    return [
        place
        for place in sorted(
            {place for place in wanted if place is not None}, key=lambda place: place.blocks
        )
        if _is_worth(place.tokens, inputs, cache)
    ]


def _previous_end(
    contents: Contents,
    places: list[MarkerPlace],
    last: MarkerPlace | None,
    inputs: CompileInput,
    cache: CacheRule,
) -> MarkerPlace | None:
    """Return where the request before this one ended, if that is too far back to be found."""
    if last is None or not cache.lookback_blocks:
        return None
    settled = inputs.settled
    newest_reply = next(
        (n for n in range(len(contents) - 1, -1, -1) if contents[n].role == "model"), None
    )
    if newest_reply is None:
        return None
    before = [p for p in places if p.content < newest_reply + settled.content_count]
    end = before[-1] if before else settled.last_place
    if end is None or last.blocks - end.blocks <= cache.lookback_blocks * _LOOKBACK_SHARE:
        return None
    return end


def _marked(contents: Contents, places: list[MarkerPlace], first: int, ttl: str) -> Contents:
    marked = list(contents)
    for place in places:
        content = marked[place.content - first]
        parts = list(content.parts)
        parts[place.part] = replace(parts[place.part], marker=ttl)
        marked[place.content - first] = replace(content, parts=tuple(parts))
    return tuple(marked)
