"""Compiling a log in memory, as the laws need it."""

from collections.abc import Sequence

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.copying import replace
from app.core.events import Event
from app.core.index import Index, resolve
from app.core.lanes import Reader
from app.core.resolve import Log
from app.formats import FORMATS


def compiled(
    events: Sequence[Event],
    index: Index,
    reader: Reader,
    format_name: str = "anthropic",
    **options: object,
) -> CompileResult:
    """Compile events for a reader."""
    inputs = CompileInput(
        options=replace(CompileOptions(reader=reader), **options),
        format=FORMATS[format_name],
        index=index,
        compiled_seq=events[-1].seq if events else 0,
    )
    return run_pipeline(tuple(events), inputs)


def at(log: Log, seq: int) -> tuple[tuple[Event, ...], Index]:
    """Return the log as it was when the head was at a seq."""
    events = tuple(event for event in log.events if event.seq <= seq)
    return events, resolve([(e.seq, e.marker) for e in events if e.marker is not None])


def live_part(log: Log, reader: Reader) -> tuple[Event, ...]:
    """Return what one statement reads: live events, active folds, and calls with live results."""
    shown = {section.fold_seq for section in log.index.sections}
    wanted = {
        event.seq
        for event in log.events
        if event.seq in shown
        or (event.marker is None and log.index.is_live(event.seq) and reader.sees(event.lane))
    }
    owners = {
        owner.seq
        for event in log.events
        if event.seq in wanted
        for owner in event.owners
        if owner is not None and not is_rewound(log, owner.seq)
    }
    siblings = {
        event.seq
        for event in log.events
        if event.marker is None and not is_rewound(log, event.seq)
        if any(owner is not None and owner.seq in owners for owner in event.owners)
    }
    return tuple(
        event
        for event in log.events
        if event.seq in wanted or (event.seq in owners | siblings and reader.sees(event.lane))
    )


def is_rewound(log: Log, seq: int) -> bool:
    """Tell whether the event at a seq is undone."""
    return any(low <= seq <= high for low, high in log.index.rewound)


def parts_of(result: CompileResult) -> list[tuple[str, str]]:
    """Return the chained parts as the provider reads them."""
    return [
        (content.role, part.text)
        for content in result.rendered
        for part in content.parts
        if not part.placed.ephemeral
    ]
