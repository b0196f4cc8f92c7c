"""Staged folds in an answer that would not fit without them, and in that answer alone."""

from collections.abc import Sequence

from app.core.events import Activation, Events, Fold, Marker
from app.core.index import Index, fold_statuses
from app.core.lanes import Reader
from app.core.ranges import FOREVER


def staged_folds(markers: Sequence[tuple[int, Marker]]) -> list[int]:
    """Return the seqs of the folds that wait to be used."""
    return [seq for seq, status in fold_statuses(markers).items() if status == "staged"]


def activating(
    staged: Sequence[int], markers: Sequence[tuple[int, Marker]]
) -> list[tuple[int, Marker]]:
    """Return the markers as if these folds had just been activated."""
    return [
        *markers,
        *((FOREVER + number, Activation(seq)) for number, seq in enumerate(staged)),
    ]


def saved_by(
    staged: Sequence[int], events: Events, reader: Reader, *, before: Index, after: Index
) -> dict[int, int]:
    """Return by fold the tokens that it saves the reader: what it stands for, less what it says.

    Args:
        staged: the folds.
        events: all that the reader sees, and the folds.
        reader: who reads.
        before: how the log is read without them.
        after: and with them.
    """
    saved = dict.fromkeys(staged, 0)
    for event in events:
        if event.seq in saved and isinstance(event.marker, Fold):
            said = (each.tokens for each in event.marker.sections if reader.sees(each.lane))
            saved[event.seq] -= sum(said)
            continue
        fold_seq = after.fold_of(event.seq)
        if fold_seq in saved and before.is_live(event.seq) and reader.sees(event.lane):
            saved[fold_seq] += sum(event.part_tokens)
    return {seq: max(0, tokens) for seq, tokens in saved.items()}
