"""What became of every event: the answer of ``explain``.

The pipeline's observer notes which events each pass gave; what a pass did is the difference. So a
pass can drop nothing without the trace being able to say so, and no pass knows that it is watched.

What nobody read for the compile is told in spans: of a long log that is nearly all of it, and its
bodies stay where they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from app.core.compile.inputs import CompileInput, CompileResult
from app.core.contents import Content, Contents
from app.core.events import Event, Events, Marker, Rewind, markers_of
from app.core.index import effective_markers

Action: TypeAlias = Literal[
    "kept",
    "masked",
    "rewound",
    "hidden",
    "merged",
    "narrated",
    "stubbed",
    "dropped",
    "repaired",
    "marker",
]

_ACTION_OF_PASS: Final[Mapping[str, Action]] = {
    "rewind": "rewound",
    "visibility": "hidden",
    "compaction_mask": "masked",
}
#: The pass that takes away what nobody read, by what is said of it.
PASS_OF_ACTION: Final[Mapping[Action, str]] = {
    action: name for name, action in _ACTION_OF_PASS.items()
}

#: Passes that leave an event where it is, and say it otherwise.
_RETOLD: Final[Mapping[str, Action]] = {"elision": "stubbed", "narration": "narrated"}

#: Repairs after which an event is still there, but not as it was appended.
_PASS_OF_REPAIR: Final[Mapping[str, str]] = {
    "late_result": "tool_pairing",
    "media_too_large": "media_limits",
    "synthetic_result": "tool_pairing",
    "unsupported_part": "lower",
    "thought_last": "merge_turns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrace:
    """One event, or one span of those that are gone alike (``to_seq`` beyond ``from_seq``)."""

    from_seq: int
    to_seq: int
    #: Of a single event.
    id: str = ""
    action: Action
    #: The pass that took it away or changed it; None where none did.
    pass_name: str | None = None
    #: The marker that is the reason.
    by_seq: int | None = None
    #: Index of the emitted content that holds it.
    block: int | None = None
    tokens: int = 0


@dataclass(slots=True)
class PassTrace:
    """The observer that remembers which events each pass gave. Use one for one compile."""

    #: By pass name, in the order of the passes: seq to the event as the pass gave it.
    events_by_pass: dict[str, Mapping[int, Event]] = field(default_factory=dict)

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave."""
        events = [item for item in items if isinstance(item, Event)]
        if events or not any(isinstance(item, Content) for item in items):
            self.events_by_pass[name] = {event.seq: event for event in events}


def explain(
    events: Events,
    inputs: CompileInput,
    trace: PassTrace,
    result: CompileResult,
    *,
    unread: Sequence[EventTrace] = (),
) -> tuple[EventTrace, ...]:
    """Return what became of every event, by seq; neighbours that are gone alike in one row.

    Args:
        events: that were read.
        inputs: of the compile.
        trace: of the compile.
        result: what came of it.
        unread: rows of all that is not among the events, and of all markers; empty where everything
            was read.
    """
    outcome = _Outcome(
        blocks=_blocks(result.contents),
        repaired={
            repair.seq: _PASS_OF_REPAIR[repair.rule]
            for repair in reversed(result.repairs)
            if repair.rule in _PASS_OF_REPAIR
        },
        rewinds=rewinds_in_effect(markers_of(events)),
    )
    told = {event.seq: _row(event, inputs, trace, outcome) for event in events}
    beside = (row for row in unread if row.from_seq not in told)
    rows: list[EventTrace] = []
    for row in sorted((*told.values(), *beside), key=lambda row: row.from_seq):
        if rows and _is_one_span(rows[-1], row):
            rows[-1] = _joined(rows[-1], row)
        else:
            rows.append(row)
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one compile made of the events."""

    #: By seq: the first content that holds the event, and whether it holds another one too.
    blocks: Mapping[int, tuple[int, bool]]
    #: By seq: the first pass that repaired the event.
    repaired: Mapping[int | None, str]
    #: ``(marker seq, first undone seq)``, newest first.
    rewinds: Sequence[tuple[int, int]]


def _row(event: Event, inputs: CompileInput, trace: PassTrace, outcome: _Outcome) -> EventTrace:
    index = inputs.index
    block, is_shared = outcome.blocks.get(event.seq, (None, False))
    changed_by, is_gone = _changed_by(event, trace)
    action: Action = "merged" if is_shared else "kept"
    by_seq: int | None = None
    if event.marker is not None:
        action, changed_by = "marker", None
    elif is_gone:
        if changed_by == "visibility" and inputs.options.reader.sees(event.lane):
            # Nothing is in it for a model to read; where it is folded, that is what it is.
            is_folded = index.fold_of(event.seq) is not None
            changed_by = "compaction_mask" if is_folded else changed_by
        action = _ACTION_OF_PASS.get(changed_by or "", "dropped")
        if action == "masked":
            by_seq = index.fold_of(event.seq)
        elif action == "rewound":
            by_seq = next((at for at, since in outcome.rewinds if since <= event.seq < at), None)
    elif block is None:
        action = "dropped"
    elif changed_by is not None and changed_by in _RETOLD:
        action = _RETOLD[changed_by]
        if action == "stubbed":
            elided = index.elision_of(event.seq)
            by_seq = elided.marker_seq if elided else None
    elif event.seq in outcome.repaired:
        action, changed_by = "repaired", outcome.repaired[event.seq]
    return EventTrace(
        from_seq=event.seq,
        to_seq=event.seq,
        id=event.id,
        action=action,
        pass_name=changed_by or ("merge_turns" if action == "merged" else None),
        by_seq=by_seq,
        block=block,
        tokens=sum(event.part_tokens),
    )


def _changed_by(event: Event, trace: PassTrace) -> tuple[str | None, bool]:
    """Return the pass that took the event away, or else the first that retold it; and whether it is
    gone."""
    retold: str | None = None
    before = event
    for name, events in trace.events_by_pass.items():
        after = events.get(event.seq)
        if after is None:
            return name, True
        if name in _RETOLD and after.parts != before.parts:
            retold = retold or name
        before = after
    return retold, False


def rewinds_in_effect(markers: Sequence[tuple[int, Marker]]) -> list[tuple[int, int]]:
    """Return ``(marker seq, first undone seq)`` of the rewinds that have an effect, newest
    first."""
    effective = effective_markers(markers)
    return [
        (seq, marker.from_seq)
        for seq, marker in reversed(markers)
        if isinstance(marker, Rewind) and seq in effective
    ]


def _blocks(contents: Iterable[Content]) -> dict[int, tuple[int, bool]]:
    """Return, by seq, the first content that holds it, and whether it holds another event too."""
    blocks: dict[int, tuple[int, bool]] = {}
    for number, content in enumerate(contents):
        seqs = {placed.seq for placed in content.parts if placed.seq is not None}
        for seq in seqs:
            blocks.setdefault(seq, (number, len(seqs) > 1))
    return blocks


def _is_one_span(row: EventTrace, following: EventTrace) -> bool:
    return row.action in PASS_OF_ACTION and (row.action, row.by_seq, row.to_seq + 1) == (
        following.action,
        following.by_seq,
        following.from_seq,
    )


def _joined(row: EventTrace, following: EventTrace) -> EventTrace:
    return EventTrace(
        from_seq=row.from_seq,
        to_seq=following.to_seq,
        action=row.action,
        pass_name=row.pass_name,
        by_seq=row.by_seq,
        tokens=row.tokens + following.tokens,
    )
