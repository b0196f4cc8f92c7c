"""Calls and results as google-adk pairs them (``spec/ADK.md`` B.8), in four steps.

    1 call(c1) | 2 result(c1, "started") | 3 u | 4 m | 5 result(c1, "done")      events
    1 call(c1) | 5 result(c1, "done")                                            after

A result goes to the newest earlier call of its id, and of the results of one call the last is read,
right after the call. When the log ends in a result, what stood between it and its call is gone from
the request, as above. Results without a call and calls without a result are dropped, except calls
that run long. Ids decide here, not the owners that were resolved at append.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from app.core.compile.inputs import CompileInput, PendingCall, Report
from app.core.compile.no_result import NO_RESULT_TOKENS, no_result
from app.core.contents import FunctionCall, FunctionResponse, Part, Segment, Text
from app.core.copying import replace
from app.core.events import USER, Event, Events, Owner


def pair(events: Events, inputs: CompileInput, report: Report) -> Events:
    """Return the events with every result next to its call, as google-adk has it."""
    if not any(event.calls or event.responses for event in events):
        return events
    matched = _without_orphan_results(events, report)
    settled = _with_last_results_settled(matched)
    paired = _with_results_at_calls(settled)
    _report_left_out(matched, paired, report)
    if inputs.options.unanswered_calls == "close":
        return _with_open_calls_closed(paired, report)
    return _without_open_calls(paired, report)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part with what the event knows of it."""

    part: Part
    tokens: int
    owner: Owner | None = None


_Pieces: TypeAlias = Sequence[_Piece]


def _pieces(event: Event) -> list[_Piece]:
    owners = iter(event.owners)
    return [
        _Piece(part, tokens, next(owners, None) if isinstance(part, FunctionResponse) else None)
        for part, tokens in zip(event.parts, event.part_tokens, strict=True)
    ]


def _of(event: Event, pieces: _Pieces) -> Event:
    """Return the event with these parts, itself when they are its own."""
    if len(pieces) == len(event.parts) and all(
        piece.part is part for piece, part in zip(pieces, event.parts, strict=True)
    ):
        return event
    return replace(
        event,
        parts=tuple(piece.part for piece in pieces),
        part_tokens=tuple(piece.tokens for piece in pieces),
        owners=tuple(piece.owner for piece in pieces if isinstance(piece.part, FunctionResponse)),
    )


def _key(part: FunctionCall | FunctionResponse) -> tuple[str, str]:
    """Return what calls and results have in common: the id or, without one, the tool's name."""
    return ("id", part.id) if part.id else ("name", part.name)


# 1. Results without a call


def _without_orphan_results(events: Events, report: Report) -> Events:
    """Drop the results for which no earlier event holds a call."""
    called: set[tuple[str, str]] = set()
    kept: list[Event] = []
    for event in events:
        pieces = _pieces(event)
        matched = [
            piece
            for piece in pieces
            if not isinstance(piece.part, FunctionResponse) or _key(piece.part) in called
        ]
        if len(matched) < len(pieces):
            report.repair("orphan_result", event.seq, "its call is not shown: dropped")
        if matched or not pieces:
            kept.append(_of(event, matched))
        called.update(_key(call) for call in event.calls)
    return tuple(kept)


# 2. The results that the log ends in


class _Calls:
    """Finds the call that a result answers."""

    def __init__(self, events: Events) -> None:
        self._at: dict[tuple[str, str], list[int]] = {}
        for at, event in enumerate(events):
            for key in {_key(call) for call in event.calls}:
                self._at.setdefault(key, []).append(at)

    def before(self, part: FunctionResponse, at: int) -> int | None:
        """Return the position of the nearest event before ``at`` that calls for this result."""
        positions = self._at.get(_key(part), ())
        count = bisect_left(positions, at)
        return positions[count - 1] if count else None


def _with_last_results_settled(events: Events) -> Events:
    """Settle the last event's results at their calls, and drop what stood after the last of those.

    Parts that are no results go with the result of the latest call.
    """
    last = len(events) - 1
    if last < 1 or not events[last].responses:
        return events
    calls = _Calls(events)
    pieces_by_call: dict[int, list[_Piece]] = {}
    others: list[_Piece] = []
    for piece in _pieces(events[last]):
        if not isinstance(piece.part, FunctionResponse):
            others.append(piece)
        elif (call_at := calls.before(piece.part, last)) is not None:
            pieces_by_call.setdefault(call_at, []).append(piece)
    if not pieces_by_call:
        return events
    latest = max(pieces_by_call)
    pieces_by_call[latest] += others
    if latest == last - 1 and len(pieces_by_call) == 1:
        return events
    settled: list[Event] = []
    for at in range(latest + 1):
        kept = _without_results_of(pieces_by_call, events[at], at, calls)
        if kept is not None:
            settled.append(kept)
        if at in pieces_by_call:
            own = _of(events[last], pieces_by_call[at])
            settled.append(_merge([*_earlier_results(at, events, calls), own]))
    return tuple(settled)


def _without_results_of(
    call_positions: Container[int | None], event: Event, at: int, calls: _Calls
) -> Event | None:
    """Return the event without results of these calls; None without results and calls."""
    if not event.responses:
        return event
    kept = [
        piece
        for piece in _pieces(event)
        if not isinstance(piece.part, FunctionResponse)
        or calls.before(piece.part, at) not in call_positions
    ]
    if not any(isinstance(piece.part, FunctionCall | FunctionResponse) for piece in kept):
        return None
    return _of(event, kept)


def _earlier_results(call_at: int, events: Events, calls: _Calls) -> list[Event]:
    """Return the events between a call and the end that hold results of it, with these alone.

    Other parts stay, unless the event also calls: then it keeps its own place.
    """
    found: list[Event] = []
    for at in range(call_at + 1, len(events) - 1):
        event = events[at]
        if not event.responses:
            continue
        pieces = [
            piece
            for piece in _pieces(event)
            if (
                calls.before(piece.part, at) == call_at
                if isinstance(piece.part, FunctionResponse)
                else not event.calls
            )
        ]
        if any(isinstance(piece.part, FunctionResponse) for piece in pieces):
            found.append(_of(event, pieces))
    return found


def _merge(events: Sequence[Event]) -> Event:
    """Return the first event with the others' parts: a result takes the place of one of its id."""
    first, *others = events
    merged = _pieces(first)
    position_by_id = {
        piece.part.id: at
        for at, piece in enumerate(merged)
        if isinstance(piece.part, FunctionResponse)
    }
    for piece in (piece for event in others for piece in _pieces(event)):
        if not isinstance(piece.part, FunctionResponse):
            merged.append(piece)
        elif piece.part.id in position_by_id:
            merged[position_by_id[piece.part.id]] = piece
        else:
            position_by_id[piece.part.id] = len(merged)
            merged.append(piece)
    # What is answered is told of the event that it comes from; the rest stays the first event's.
    source = next(event for event in events if any(p is merged[0].part for p in event.parts))
    return replace(_of(first, merged), seq=source.seq, id=source.id)


# 3. All other results


def _with_results_at_calls(events: Events) -> Events:
    """Put the last result of each call right after it; drop texts that a later one overtook."""
    if not any(event.responses for event in events):
        return events
    results_by_call = _results_by_call(events)
    stale = _stale_texts(events, results_by_call.values())
    paired: list[Event] = []
    for at, event in enumerate(events):
        if at in stale or event.responses:
            continue
        paired.append(event)
        last_results = {
            results_by_call[call.id, at][-1]
            for call in event.calls
            if (call.id, at) in results_by_call
        }
        if last_results:
            paired.append(_merge([events[result_at] for result_at in sorted(last_results)]))
    return tuple(paired)


def _results_by_call(events: Events) -> dict[tuple[str | None, int], list[int]]:
    """Return the positions of the results of each call, known by its id and position.

    No id is an id like any other here, whatever the tool. Events that hold results call nothing.
    """
    calls_by_id: dict[str | None, list[int]] = {}
    for at, event in enumerate(events):
        if not event.responses:
            for call in event.calls:
                calls_by_id.setdefault(call.id, []).append(at)
    results: dict[tuple[str | None, int], list[int]] = {}
    for at, event in enumerate(events):
        for part in event.responses:
            positions = calls_by_id.get(part.id)
            if positions:
                call_at = positions[max(bisect_left(positions, at) - 1, 0)]
                results.setdefault((part.id, call_at), []).append(at)
    return results


def _stale_texts(events: Events, results: Iterable[Sequence[int]]) -> set[int]:
    """Return the positions of model texts between two updates of one call in one invocation."""
    stale: set[int] = set()
    for positions in results:
        for earlier, later in pairwise(positions):
            first, second = events[earlier], events[later]
            between = range(earlier + 1, later)
            if (
                (first.invocation_id, first.author) == (second.invocation_id, second.author)
                and not first.requested_ids
                and all(_is_stale(events[at], first.invocation_id) for at in between)
            ):
                stale.update(between)
    return stale


def _is_stale(event: Event, invocation_id: str) -> bool:
    return (
        event.invocation_id == invocation_id
        and event.author != USER
        and event.role == "model"
        and event.segment is not Segment.SUMMARIES
        and not event.calls
        and any(isinstance(part, Text) and part.text for part in event.parts)
    )


def _report_left_out(before: Events, after: Events, report: Report) -> None:
    """Report the events of which nothing is left; parts that moved into another event are left."""
    # By identity: the steps move parts, they never make new ones, and equal parts are common.
    shown = {id(part) for event in after for part in event.parts}
    for event in before:
        if event.segment is not Segment.HISTORY or not event.parts:
            continue
        if not any(id(part) in shown for part in event.parts):
            rule = "replaced" if event.responses else "passed_over"
            report.repair(rule, event.seq, "a later result of an earlier call takes its place")


# 4. Calls without a result


def _with_open_calls_closed(events: Events, report: Report) -> Events:
    """Answer the calls that no result answers, right after them, as ``stable`` does."""
    answered = {part.id for event in events for part in event.responses}
    closed: list[Event] = []
    for event in events:
        closed.append(event)
        open_calls = [call for call in event.calls if call.id and call.id not in answered]
        for call in open_calls:
            report.pending.append(PendingCall(call.id, call.name, event.seq))
            report.repair("synthetic_result", event.seq, f"no result of {call.name}")
        if open_calls:
            closed.append(
                replace(
                    event,
                    role="user",
                    parts=tuple(no_result(call) for call in open_calls),
                    part_tokens=(NO_RESULT_TOKENS,) * len(open_calls),
                    owners=(None,) * len(open_calls),
                    place=None,
                )
            )
    return tuple(closed)


def _without_open_calls(events: Events, report: Report) -> Events:
    """Drop the calls that no result answers, except those that run long and those without an id."""
    answered = {part.id for event in events for part in event.responses}
    long_running = {call_id for event in events for call_id in event.long_running_ids}
    kept: list[Event] = []
    for event in events:
        pieces: list[_Piece] = []
        for piece in _pieces(event):
            call = piece.part
            if isinstance(call, FunctionCall) and call.id and call.id not in answered:
                report.pending.append(PendingCall(call.id, call.name, event.seq))
                if call.id not in long_running:
                    report.repair(
                        "unanswered_call", event.seq, f"no result of {call.name}: dropped"
                    )
                    continue
            pieces.append(piece)
        if pieces or not event.parts:
            kept.append(_of(event, pieces))
    return tuple(kept)
