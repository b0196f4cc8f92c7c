"""Where a span may end: what must be folded together, and the cuts that split none of it.

    1 u | 2 c(a) c(b) | 3 r(a) | 4 u | 5 r(b) | 6 m          events, oldest first
    cuts after 1, 5 and 6; {2, 3, 5} is one group            what may be cut

A *group* is what one fold covers wholly or not at all: a call with all that answers it, the events
of one response, all of a lane whose call is answered and closed. A *loop* is a run of calls and
results that began with thinking: providers want such a run whole, so a cut within is the last
resort. Groups that hold something that may not be folded now hinder no cut: they stay as holes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from app.core.compaction.facts import PlanEvent
from app.core.lanes import Lane
from app.core.ranges import Range, Ranges, union

#: What tells responses apart: where it is, whose it is, its first event.
_Response: TypeAlias = tuple[Lane, str, int]


class Boundaries:
    """Groups, loops and cuts of some events.

    A cut is named by the seq before it: a cut at 5 folds 5 and keeps 6.
    """

    def __init__(
        self,
        events: Sequence[PlanEvent],
        *,
        is_closed: Callable[[Lane], bool],
        is_hole: Callable[[int], bool],
    ) -> None:
        """Take events in log order.

        Args:
            events: what may be folded or split.
            is_closed: whether a lane's call is answered and closed.
            is_hole: whether the event at a seq may not be folded now.
        """
        self._groups = _groups(events, is_closed)
        groups = [
            (group[0], group[-1] - 1)
            for group in set(self._groups.values())
            if not any(is_hole(seq) for seq in group)
        ]
        loops = _loops([event for event in events if not is_hole(event.seq)])
        self._within_groups = union(groups)
        self._within_loops = union((*groups, *loops))

    def group_of(self, seq: int) -> tuple[int, ...]:
        """Return the seqs that are folded with this one, in order."""
        return self._groups.get(seq, (seq,))

    def latest_cut(self, cut: int, *, may_split_loops: bool = False) -> int:
        """Return the last cut at or before this one."""
        start, _ = _around(self._forbidden(may_split_loops=may_split_loops), cut)
        return cut if start is None else start - 1

    def earliest_cut(self, cut: int, *, may_split_loops: bool = False) -> int:
        """Return the first cut at or after this one."""
        _, end = _around(self._forbidden(may_split_loops=may_split_loops), cut)
        return cut if end is None else end + 1

    def _forbidden(self, *, may_split_loops: bool) -> Ranges:
        return self._within_groups if may_split_loops else self._within_loops


def _around(forbidden: Ranges, cut: int) -> Range | tuple[None, None]:
    """Return the forbidden range that holds the cut."""
    for start, end in forbidden:
        if start <= cut <= end:
            return start, end
    return None, None


def _groups(
    events: Sequence[PlanEvent], is_closed: Callable[[Lane], bool]
) -> Mapping[int, tuple[int, ...]]:
    """Return the group of each event that is not alone, by seq."""
    roots: dict[int, int] = {event.seq: event.seq for event in events}

    def root_of(seq: int) -> int:
        while roots[seq] != seq:
            roots[seq] = roots[roots[seq]]
            seq = roots[seq]
        return seq

    def join(seq: int, other: int) -> None:
        roots[root_of(seq)] = root_of(other)

    first_of_response: dict[_Response, int] = {}
    first_of_lane: dict[Lane, int] = {}
    for event in events:
        for owner_seq in event.owner_seqs:
            if owner_seq in roots:
                join(event.seq, owner_seq)
        if event.response_seq is not None:
            join(event.seq, first_of_response.setdefault(_response_of(event), event.seq))
        if is_closed(event.lane):
            join(event.seq, first_of_lane.setdefault(event.lane, event.seq))
    members: dict[int, list[int]] = {}
    for event in events:
        members.setdefault(root_of(event.seq), []).append(event.seq)
    return {seq: tuple(group) for group in members.values() if len(group) > 1 for seq in group}


def _loops(events: Sequence[PlanEvent]) -> Iterable[Range]:
    """Return the cuts that lie within a loop.

    A thought may be an event of its own, so what a response does is asked, not what an event does.
    """
    calling = {_response_of(event) for event in events if event.has_calls}
    thinking = {_response_of(event) for event in events if event.is_thinking}
    open_by_lane: dict[Lane, list[PlanEvent]] = {}
    loops: list[list[PlanEvent]] = []
    for event in events:
        response, loop = _response_of(event), open_by_lane.get(event.lane, [])
        if response in calling:
            if loop and loop[0].author == event.author:
                loop.append(event)
            elif response in thinking:
                open_by_lane[event.lane] = [event]
                loops.append(open_by_lane[event.lane])
            else:
                open_by_lane.pop(event.lane, None)
        elif loop and any(owner is not None for owner in event.owner_seqs):
            loop.append(event)
        elif event.is_user_message or event.response_seq is not None:
            open_by_lane.pop(event.lane, None)
    return [(loop[0].seq, loop[-1].seq - 1) for loop in loops]


def _response_of(event: PlanEvent) -> _Response:
    return event.lane, event.author, event.response_seq or event.seq
