"""Keep what a compile made of everything before the newest reply, for the next one to go on from.

    [sum: 1-40] [u41] [m42] [u43] [m44] [u45: result]        a compile: the newest reply is m44
    [sum: 1-40] [u41] [m42] [u43]                            is settled
                                  [m44] [u45: result] [m46]  the next one is given what follows

Sound by the prefix law as long as index, options, system text and tools stay the same; who keeps a
:class:`Settled` sees to that. Nothing more is settled where what follows depends on more than is
kept: after a cut for the budget or of media, with a summary behind the reply, and where a user text
stands for a turn that was stripped of all it said.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.core.compile.breaks import count_before
from app.core.compile.edits import newest_edit
from app.core.compile.inputs import (
    CompileInput,
    CompileOptions,
    CompileResult,
    MarkerPlace,
    RenderedContent,
    RenderedPart,
    Settled,
    SettledItems,
)
from app.core.compile.marker_places import marker_places
from app.core.compile.media import MediaKind, count_media
from app.core.compile.nudge import is_nudge
from app.core.compile.order import is_reply, read_key
from app.core.compile.projection import Counted, newest_report
from app.core.compile.render import chained_parts, items_of
from app.core.contents import Contents, FunctionCall
from app.core.events import Event, Events


def can_settle(options: CompileOptions) -> bool:
    """Tell whether compiles with these options go on from one another."""
    return (
        options.preset == "stable"
        and options.include_contents == "default"
        and not options.expand
        and not options.single_turn
    )


def given_after(events: Events, settled: Settled, inputs: CompileInput) -> Events | None:
    """Return the events that follow what is settled.

    Args:
        events: everything read that may follow it; events before it may be among them.
        settled: of an earlier compile with this index and these options.
        inputs: of the compile at hand.

    Returns:
        None when something has landed before what was settled: an event, as no reply of the
        reader's own does, or the call that opened the reader's scope, after the scope's own events.
        None, too, when a response goes on that began before, or there may be more media in all than
        the provider takes.
    """
    if settled.until is None:
        return events
    if settled.opening_args != inputs.opening_args:
        return None
    given: list[Event] = []
    for event in events:
        if event.marker is not None:
            continue
        if read_key(event, inputs.options.reader, inputs.index) >= settled.until:
            given.append(event)
        elif event.seq > settled.head_seq:
            return None
    if _goes_on_with_settled(given) or _may_hold_too_many(given, settled, inputs):
        return None
    return tuple(given)


def _goes_on_with_settled(given: Sequence[Event]) -> bool:
    """Tell whether a response that began before goes on after: it is looked at as a whole."""
    seqs = {event.seq for event in given}
    return any(event.place and event.place.response_seq not in seqs for event in given)


def _may_hold_too_many(given: Iterable[Event], settled: Settled, inputs: CompileInput) -> bool:
    limited = inputs.format.limited_media
    if limited is None:
        return False
    counts = count_media((part for event in given for part in event.parts), limited)
    limits = limited.limits_of(inputs.options.model)
    return any(
        count + settled.media_counts.get(kind, 0) > limits[kind].most
        for kind, count in counts.items()
    )


def settle(
    events: Events, inputs: CompileInput, result: CompileResult, counted: Counted
) -> Settled:
    """Return what stands before the newest reply, or what was settled before if nothing newer does.

    Args:
        events: that were compiled, after what was settled.
        inputs: of the compile.
        result: what came of it.
        counted: our count of that.
    """
    before = inputs.settled
    if result.budget_actions or not can_settle(inputs.options):
        return before
    by_seq = {event.seq: event for event in events}
    found = _newest_reply(result.contents, by_seq, inputs)
    if found is None:
        return before
    reply, count = found
    contents, rendered = result.contents[:count], result.rendered[:count]
    reader, index = inputs.options.reader, inputs.index
    until = read_key(reply, reader, index)
    shown_folds = {section.fold_seq for section in index.sections}
    earlier = {
        event.seq
        for event in events
        if event.seq in shown_folds or read_key(event, reader, index) < until
    }
    parts = chained_parts(rendered)
    part_count = before.part_count + len(parts)
    places = list(marker_places(contents, inputs))
    summary = next((p for p in reversed(places) if p.is_summary), before.summary_place)
    last = places[-1] if places else before.last_place
    items, fields = _items(rendered, inputs, before, keep={summary, last} - {None})
    recorded = _recorded(events, earlier, rendered, inputs) or (before.reply, before.reply_at)
    told = tuple(event for event in events if event.seq in earlier)
    report = newest_report(result, told, reader)
    left_tokens = sum(
        placed.tokens for content in result.contents[count:] for placed in content.parts
    )
    return Settled(
        until=until,
        head_seq=inputs.compiled_seq,
        content_count=before.content_count + count,
        last_content=contents[-1] if contents else before.last_content,
        chain=result.chain[: part_count + 1],
        system=result.system,
        tools=result.tools,
        opening_args=inputs.opening_args,
        items=items,
        fields=fields,
        repairs=(
            *before.repairs,
            *(r for r in result.repairs if r.seq is None or r.seq in earlier),
        ),
        thoughts=(*before.thoughts, *(t for t in result.thoughts if t.seq in earlier)),
        calls=before.calls.union(call for call in result.calls if call[0] in earlier),
        emitted_ids=before.emitted_ids.union(_call_ids(parts)),
        media_counts=_media_counts(parts, inputs),
        newest_edit=max(before.newest_edit, *(newest_edit(content, index) for content in contents)),
        by_segment=_by_segment(parts, counted, inputs),
        up_to=counted.up_to[: part_count + 1],
        placed_tokens=before.placed_tokens + sum(part.placed.tokens for _, part in parts),
        budgeted_tokens=result.budgeted_tokens - left_tokens,
        summary_place=summary,
        last_place=last,
        reply=recorded[0],
        reply_at=recorded[1],
        report=report[0] if report else None,
        report_at=report[1] if report else 0,
    )


def _newest_reply(
    contents: Contents, by_seq: dict[int, Event], inputs: CompileInput
) -> tuple[Event, int] | None:
    """Return the reply that begins the newest response, and the number of contents to settle."""
    reader, index = inputs.options.reader, inputs.index
    for number in range(len(contents) - 1, -1, -1):
        content = contents[number]
        seq = content.response_seq
        if content.role != "model" or seq is None or content.parts[0].seq != seq:
            continue
        reply = by_seq.get(seq)
        if reply is None or not is_reply(reply, reader) or not index.is_live(seq):
            continue
        until = read_key(reply, reader, index)
        has_later_summary = any(section.at_seq > until[0] for section in index.sections)
        count = _count_before(contents[:number], inputs)
        return None if has_later_summary or not count else (reply, count)
    return None


def _count_before(contents: Contents, inputs: CompileInput) -> int | None:
    """Return how many of the contents before a reply are settled; the text that stands only between
    it and another model's turn is not. None: that text stands for something else."""
    if any(placed.ephemeral for content in contents for placed in content.parts):
        return None
    if not contents or not any(map(is_nudge, contents[-1].parts)):
        return len(contents)
    previous = contents[-2] if len(contents) > 1 else inputs.settled.last_content
    if len(contents[-1].parts) > 1 or previous is None or previous.role != "model":
        return None
    return len(contents) - 1


def _items(
    rendered: Sequence[RenderedContent],
    inputs: CompileInput,
    before: Settled,
    *,
    keep: Iterable[MarkerPlace | None],
) -> tuple[tuple[SettledItems, ...], dict[str, str]]:
    """Return all settled contents as text, apart where a marker may come to stand, and the fields
    beside them."""
    wire, model = inputs.format, inputs.options.model
    by_content: dict[int, list[MarkerPlace]] = {}
    for place in keep:
        if place is not None:
            by_content.setdefault(place.content, []).append(place)
    fields = dict(before.fields)
    items = [_without_place(each, by_content) for each in before.items]
    run: list[RenderedContent] = []

    def add(contents: Sequence[RenderedContent], places: Sequence[MarkerPlace] = ()) -> None:
        more = items_of(contents, wire, model)
        text = more.pop(wire.history_field)
        fields.update(more)
        if places:
            items.append(SettledItems(text, tuple(places), contents[0]))
        elif text:
            items.append(SettledItems(text))

    for number, content in enumerate(rendered, start=before.content_count):
        places = by_content.get(number)
        if places is None:
            run.append(content)
            continue
        add(run)
        run = []
        add((content,), places)
    add(run)
    return _merged(items), fields


def _without_place(items: SettledItems, keep: dict[int, list[MarkerPlace]]) -> SettledItems:
    places = tuple(place for place in items.places if place in keep.get(place.content, ()))
    return SettledItems(items.text, places, items.content if places else None)


def _merged(items: Iterable[SettledItems]) -> tuple[SettledItems, ...]:
    merged: list[SettledItems] = []
    for each in items:
        if merged and not merged[-1].places and not each.places:
            merged[-1] = SettledItems(f"{merged[-1].text},{each.text}")
        else:
            merged.append(each)
    return tuple(merged)


def _recorded(
    events: Events,
    earlier: set[int],
    rendered: Sequence[RenderedContent],
    inputs: CompileInput,
) -> tuple[Event, int] | None:
    """Return the newest settled reply that says what it was compiled for, and the parts before."""
    shown = {part.placed.seq for role, part in chained_parts(rendered) if role == "model"}
    replies = [
        event
        for event in events
        if event.compiled_fingerprint
        and event.seq in earlier
        and event.seq in shown
        and is_reply(event, inputs.options.reader)
    ]
    if not replies:
        return None
    reply = max(replies, key=lambda event: event.seq)
    count = count_before(reply, rendered)
    return None if count is None else (reply, inputs.settled.part_count + count)


def _call_ids(parts: Iterable[tuple[str, RenderedPart]]) -> Iterable[str]:
    for _, rendered in parts:
        part = rendered.placed.part
        if isinstance(part, FunctionCall) and part.id is not None:
            yield part.id


def _media_counts(
    parts: Iterable[tuple[str, RenderedPart]], inputs: CompileInput
) -> Mapping[MediaKind, int]:
    limited = inputs.format.limited_media
    if limited is None:
        return {}
    counts = count_media((rendered.placed.part for _, rendered in parts), limited)
    return counts + Counter(inputs.settled.media_counts)


def _by_segment(
    parts: Sequence[tuple[str, RenderedPart]], counted: Counted, inputs: CompileInput
) -> dict[str, int]:
    by_segment = dict(inputs.settled.by_segment) or dict.fromkeys(counted.by_segment, 0) | {
        name: counted.by_segment[name] for name in ("system", "tools")
    }
    for number, (_, part) in enumerate(parts, start=inputs.settled.part_count):
        tokens = counted.up_to[number + 1] - counted.up_to[number]
        by_segment[part.placed.segment] += tokens
    return by_segment
