"""Why the newest reply no longer stands on the request that it answered.

A reply says what it was compiled at and with which fingerprint. If the chain in front of it now is
another, the provider's cache will miss and reasoning bound to the prefix is lost. What was compiled
then can be compiled again, since compile is pure; the first part that differs, and the marker that
came since, are the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.compile.inputs import CompileResult, RenderedContent, RenderedPart
from app.core.compile.order import is_reply
from app.core.compile.render import chained_parts
from app.core.events import (
    Activation,
    Elision,
    Event,
    Events,
    Fold,
    Marker,
    Pin,
    Rewind,
    Undo,
    Unpin,
)
from app.core.fingerprint import head_difference
from app.core.index import Index, resolve
from app.core.lanes import Reader
from app.core.ranges import Ranges, intersect, of_seqs, subtract

BreakReason: TypeAlias = Literal[
    "tools",
    "system",
    "model",
    "pin",
    "compaction",
    "elision",
    "rewind",
    "budget",
    "overlap",
    "option",
]


@dataclass(frozen=True, slots=True)
class Break:
    """The first difference and what caused it."""

    reason: BreakReason
    #: The event that caused it; None when the request's own options did.
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two compiles part: the number of chained parts they share, and the part that
    follows."""

    shared_count: int
    first: RenderedPart | None
    second: RenderedPart | None


def first_difference(first: CompileResult, second: CompileResult) -> Difference | None:
    """Return where two compiles part, or None when all chained parts and the head are equal."""
    ours, theirs = chained_parts(first.rendered), chained_parts(second.rendered)
    shared = 0
    for (role, part), (other_role, other) in zip(ours, theirs, strict=False):
        if (role, part.text) != (other_role, other.text):
            break
        shared += 1
    if shared == len(ours) == len(theirs):
        return None
    return Difference(
        shared,
        ours[shared][1] if shared < len(ours) else None,
        theirs[shared][1] if shared < len(theirs) else None,
    )


def newest_reply(events: Events, result: CompileResult, reader: Reader) -> Event | None:
    """Return the newest reply that is shown as the model's and says what it was compiled for.

    Of the events of one response the first: what follows it was produced in one go with it. A reply
    that answers another agent's call as well is told as a whole, and was no turn of the model's.
    """
    candidates = [e for e in events if e.compiled_fingerprint and is_reply(e, reader)]
    if not candidates:
        return result.settled.reply
    shown = {part.placed.seq for role, part in chained_parts(result.rendered) if role == "model"}
    newest = max((e for e in candidates if e.seq in shown), key=lambda e: e.seq, default=None)
    return newest or result.settled.reply


def gone_reply(events: Iterable[Event], index: Index, reader: Reader) -> Event | None:
    """Return the newest reply, shown or not, if it was folded or rewound away.

    Args:
        events: at least the newest reply, whatever became of it.
        index: how the log is read.
        reader: whose replies are looked at.
    """
    replies = (event for event in events if is_reply(event, reader))
    newest = max(replies, key=lambda event: event.seq, default=None)
    return None if newest is None or index.is_live(newest.seq) else newest


def changed_reply(
    recorded: Event | None, events: Iterable[Event], index: Index, reader: Reader
) -> Event | None:
    """Return the newest reply if none says what it was compiled for, and a fold or an elision that
    is in use came after it.

    Args:
        recorded: a reply that is shown and says so, if there is any.
        events: at least the newest reply, if it is shown.
        index: how the log is read.
        reader: whose replies are looked at.
    """
    if recorded is not None or not (index.sections or index.elided):
        return None
    replies = (event for event in events if is_reply(event, reader) and index.is_live(event.seq))
    newest = max(replies, key=lambda event: event.seq, default=None)
    folds = (section.fold_seq for section in index.sections)
    changed_seq = max((*folds, *(elided.marker_seq for elided in index.elided)))
    return newest if newest is not None and changed_seq > newest.seq else None


def compiled_at(reply: Event) -> int:
    """Return the head of the log that a reply was compiled from."""
    return reply.seq - 1 if reply.compiled_seq is None else reply.compiled_seq


def is_lost(gone: Event | None, result: CompileResult) -> bool:
    """Tell whether what a reply that is gone was compiled for does not stand any more."""
    recorded = gone.compiled_fingerprint if gone is not None else None
    return recorded is not None and recorded not in result.chain


def fingerprint_before(reply: Event, result: CompileResult) -> str:
    """Return the chain's value in front of the reply's response.

    It begins with the first content of the response that is sent: what the response began with may
    have been left out, blank or stripped.
    """
    if reply is result.settled.reply:
        return result.chain[result.settled.reply_at]
    count = count_before(reply, result.rendered)
    return result.fingerprint if count is None else result.chain[result.settled.part_count + count]


def count_before(reply: Event, rendered: Iterable[RenderedContent]) -> int | None:
    """Return how many chained parts stand in front of the reply's response, None if it is not
    there."""
    response_seq = reply.place.response_seq if reply.place else reply.seq
    count = 0
    for content in rendered:
        if content.role == "model" and content.content.response_seq == response_seq:
            return count
        count += sum(not part.placed.ephemeral for part in content.parts)
    return None


_REASONS: Final[tuple[tuple[type[Marker], BreakReason], ...]] = (
    (Fold, "compaction"),
    (Activation, "compaction"),
    (Elision, "elision"),
    (Rewind, "rewind"),
    (Pin, "pin"),
    (Unpin, "pin"),
)


def find_break(
    reply: Event,
    now: CompileResult,
    then: CompileResult,
    *,
    index: Index,
    markers: Sequence[tuple[int, Marker]],
) -> Break | None:
    """Return why the chain in front of the reply is not what the reply recorded, or None if it is.

    Args:
        reply: from :func:`newest_reply` or :func:`gone_reply`; it has ``compiled_fingerprint``.
        now: the compile at hand.
        then: what the log up to the reply's ``compiled_seq`` compiles to with today's options.
        index: the index of the compile at hand.
        markers: all markers up to the compile at hand.
    """
    recorded = reply.compiled_fingerprint or ""
    if fingerprint_before(reply, now) == recorded:
        return None
    head = head_difference(recorded, now.fingerprint)
    if head is not None:
        return Break(head)
    if then.fingerprint != recorded:
        # Where something is cut, the counts that decide what may have changed since.
        is_cut = now.budget_actions or then.budget_actions
        return Break("budget" if is_cut else "option")
    found = cause_between(then, now, index=index, markers=markers, since_seq=compiled_at(reply))
    if found is None and not index.is_live(reply.seq):
        found = _newest_change(sorted(markers, key=lambda pair: pair[0]), reply.seq)
    return found or Break("overlap", reply.seq)


def cause_between(
    first: CompileResult,
    second: CompileResult,
    *,
    index: Index,
    markers: Sequence[tuple[int, Marker]],
    since_seq: int,
) -> Break | None:
    """Return the marker that makes the second compile differ from the first, None without one.

    Args:
        first: the compile of the log up to ``since_seq``.
        second: a compile of a later position.
        index: the index of the later position.
        markers: all markers up to the later position.
    """
    ordered = sorted(markers, key=lambda pair: pair[0])
    later_folds = {seq for seq, marker in ordered if seq > since_seq and isinstance(marker, Fold)}
    difference = first_difference(first, second)
    for part in (difference.first, difference.second) if difference else ():
        seq = part.placed.seq if part else None
        fold_seq = index.fold_of(seq) if seq is not None else None
        for candidate in (fold_seq, seq):
            if candidate in later_folds:
                return Break("compaction", candidate)
    found = _newest_change(ordered, since_seq)
    if found is None and first.budget_actions != second.budget_actions:
        return Break("budget")
    return found


def change_before(reply: Event, markers: Sequence[tuple[int, Marker]]) -> Break | None:
    """Return the newest marker after a reply that changed how what it was compiled from is read.

    For a reply that does not say what it was compiled for: what is left of that is not known.
    """
    return _newest_change(sorted(markers, key=lambda pair: pair[0]), reply.seq - 1)


def _newest_change(ordered: Sequence[tuple[int, Marker]], since_seq: int) -> Break | None:
    """Return the newest later marker that changed how the events up to ``since_seq`` are read."""
    by_seq = dict(ordered)
    after = _view(ordered, since_seq)
    for count in range(len(ordered) - 1, -1, -1):
        seq, marker = ordered[count]
        if seq <= since_seq:
            return None
        before = _view(ordered[:count], since_seq)
        if before != after:
            reason = _reason_of(marker, by_seq)
            return Break(reason, seq) if reason else None
        after = before
    return None


def _view(markers: Sequence[tuple[int, Marker]], since_seq: int) -> object:
    """Return how the events up to a seq are read: which are live, what the others belong to, and
    what is a stub."""
    index = resolve(markers)
    until: Ranges = ((1, since_seq),)
    # Markers belong to no section, though its ranges run over them.
    events = subtract(until, of_seqs(seq for seq, _ in markers))
    sections = [
        (section.fold_seq, section.section_index, intersect(section.belongs, events))
        for section in index.sections
    ]
    elided = [(each.keep_chars, intersect(each.seqs, until)) for each in index.elided]
    return (
        intersect(index.live, until),
        [section for section in sections if section[2]],
        [each for each in elided if each[1]],
    )


def _reason_of(marker: Marker, by_seq: Mapping[int, Marker]) -> BreakReason | None:
    """Return the reason that a marker is; an undo is what it undoes."""
    target: Marker | None = marker
    while isinstance(target, Undo):
        target = by_seq.get(target.target_seq)
    return next((reason for kind, reason in _REASONS if isinstance(target, kind)), None)
