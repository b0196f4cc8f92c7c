"""The search for a fold: spans are tried one after the other, and what spoke against them told."""

from collections.abc import Callable, Iterator, Sequence

from app.core.compaction.draft import Draft
from app.core.compaction.planned import Nothing, Plan, Reason
from app.core.compaction.policy import Moment
from app.core.compaction.view import PlanView, Selection
from app.core.ranges import FOREVER, Range


class Search:
    """Tries spans one after the other and remembers what spoke against them."""

    def __init__(self, view: PlanView, moment: Moment, *, is_asked: bool) -> None:
        self.view = view
        self.policy = view.policy
        self.moment: Moment = moment
        self.is_asked = is_asked
        self._refused: list[Nothing] = []

    def refuse(self, reason: Reason, detail: str) -> None:
        """Remember why a span is none."""
        self._refused.append(Nothing(reason, detail))

    def nothing(self) -> Nothing:
        """Return what came nearest to a plan."""
        order: Sequence[Reason] = (
            "no_progress",
            "not_worth_it",
            "undone_span",
            "refused_span",
            "open_invocation",
            "all_protected",
        )
        for reason in order:
            for refused in self._refused:
                if refused.reason == reason:
                    return refused
        if self.view.held and all(refused.reason == "nothing_live" for refused in self._refused):
            return Nothing("open_invocation", "all that is live is what the user asks now")
        return self._refused[0] if self._refused else Nothing("nothing_live", "nothing is live")

    def attempt(
        self,
        selection: Selection,
        span: Range,
        *,
        level: int = 1,
        is_enough: Callable[[Draft], Nothing | None] | None = None,
        has_worth_check: bool = True,
        tightens: bool = False,
    ) -> Plan | None:
        """Return the plan of a selection unless something speaks against it.

        Args:
            selection: what to fold.
            span: where it was looked for.
            level: of the fold.
            is_enough: says why it is not, of a fold that nobody asks for.
            has_worth_check: it has to hold more than the last summary took.
            tightens: sections of which nothing new is known become shorter too, if they take more
                than their part.
        """
        draft = Draft(self.view, selection, tightens=tightens)
        is_old = not tightens and all(section.is_carried for section in draft.sections)
        if not draft.sections or is_old:
            self.refuse(*self._why_empty(span))
            return None
        if has_worth_check and self._is_worthless(draft):
            last = self.view.last_summary_tokens
            self.refuse(
                "not_worth_it",
                f"{draft.saved_tokens} tokens could be saved, and the last summary took {last}",
            )
            return None
        refused = None if is_enough is None or self.is_asked else is_enough(draft)
        if refused is not None:
            self._refused.append(refused)
            return None
        return draft.plan(level=level, moment=self.moment, is_staged=self.policy.is_staged)

    def cuts(self, end: int) -> Iterator[int]:
        """Yield where a span that should end here may end, the best first.

        Last of all it ends here whatever it splits: what would be split stays as a hole.
        """
        boundaries = self.view.boundaries
        seen: set[int] = set()
        for cut in (
            boundaries.latest_cut(end),
            boundaries.latest_cut(end, may_split_loops=True),
            end,
        ):
            if cut not in seen:
                seen.add(cut)
                yield cut

    def _is_worthless(self, draft: Draft) -> bool:
        if not self.policy.has_worth_check or self.moment == "range":
            return False
        return draft.saved_tokens <= self.view.last_summary_tokens

    def _why_empty(self, span: Range) -> tuple[Reason, str]:
        """Return why nothing in a span may be folded."""
        stays: dict[str, int] = {}
        live = [event for event in self.view.live if span[0] <= event.seq <= span[1]]
        for event in live:
            why = self.view.hole_reasons.get(event.seq, "split")
            stays[why] = stays.get(why, 0) + 1
        told = ", ".join(f"{count} {why}" for why, count in sorted(stays.items()))
        detail = f"of {len(live)} live events from {span[0]} to {_named(span[1])}: {told or 'none'}"
        if "undone" in stays:
            return "undone_span", detail
        if "refused" in stays:
            return "refused_span", detail
        if not live:
            return "nothing_live", detail
        return "all_protected", detail


def _named(seq: int) -> str:
    return "the head" if seq >= FOREVER else str(seq)
