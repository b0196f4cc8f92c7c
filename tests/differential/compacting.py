"""google-adk's compaction engine and our planner on one stream, side by side.

Both get the same events and, after each fold, the same summary: google-adk's own event, which we
read as any imported one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.apps import compaction as adk
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events._rewind_events import _apply_rewinds
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.sessions.session import Session as AdkSession
from google.genai import types

from app.core.compaction.facts import facts_known
from app.core.compaction.plan import plan_compaction
from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy, Moment
from app.core.compaction.view import PlanView
from app.core.contents import FunctionCall
from app.core.copying import replace
from app.core.events import Event, Fold
from app.core.ranges import contains, subtract, union
from app.core.resolve import Facts, Resolver
from tests.differential.reading import EventJson, parsed

AGENT: Final = "a"

#: What google-adk counts for a summary of no length, besides what it saves.
EMPTY_SUMMARY_CHARS: Final = len(
    types.Content(role="model", parts=[]).model_dump_json(exclude_none=True)
)


class _Scripted(BaseEventsSummarizer):
    """Notes what it is given, and says something of a given length."""

    def __init__(self) -> None:
        self.window: list[AdkEvent] = []
        self.length = 1

    async def maybe_summarize_events(self, *, events: list[AdkEvent]) -> AdkEvent | None:
        self.window = list(events)
        said = types.Content(role="model", parts=[types.Part(text="s" * self.length)])
        compaction = EventCompaction(
            start_timestamp=events[0].timestamp,
            end_timestamp=events[-1].timestamp,
            compacted_content=said,
        )
        return AdkEvent(author="user", actions=EventActions(compaction=compaction))


class _Appends:
    """A session service that only appends."""

    async def append_event(self, session: AdkSession, event: AdkEvent) -> AdkEvent:
        session.events.append(event)
        return event


@dataclass(frozen=True)
class Config:
    """google-adk's settings, and ours of the same meaning."""

    interval: int | None = None
    overlap: int = 0
    threshold: int | None = None
    retention: int = 1

    @property
    def policy(self) -> CompactionPolicy:
        """Our policy; the next level, which google-adk has not, never comes."""
        pairs: dict[str, Any] = {}
        if self.interval is not None:
            pairs |= {"compaction_interval": self.interval, "overlap_size": self.overlap}
        if self.threshold is not None:
            pairs |= {
                "token_threshold": self.threshold,
                "event_retention_size": self.retention,
            }
        both = self.interval is not None and self.threshold is not None
        strategy = "both" if both else "interval" if self.threshold is None else "threshold"
        return CompactionPolicy.of({"compaction": {"strategy": strategy, "fanout": 1_000, **pairs}})

    def config(self, summarizer: BaseEventsSummarizer) -> EventsCompactionConfig:
        """google-adk's own."""
        return EventsCompactionConfig(
            summarizer=summarizer,
            compaction_interval=self.interval,
            overlap_size=None if self.interval is None else self.overlap,
            token_threshold=self.threshold,
            event_retention_size=None if self.threshold is None else self.retention,
        )


@dataclass(frozen=True)
class Window:
    """What is summarized at once."""

    #: Seqs of the events read.
    seqs: tuple[int, ...]
    #: It goes on from an earlier summary.
    has_seed: bool


class SideBySide:
    """One stream in both."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._summarizer = _Scripted()
        self._app = App(
            name="app",
            root_agent=BaseAgent(name=AGENT),
            events_compaction_config=config.config(self._summarizer),
        )
        self._session = AdkSession(id="s", app_name="app", user_id="u")
        self._resolver = Resolver(Facts())
        self.events: list[Event] = []
        self._seqs: dict[str, int] = {}

    def append(self, body: EventJson) -> None:
        """Append an event to both."""
        self._session.events.append(AdkEvent.model_validate(body))
        self._append_ours(body, chars=_chars(self._session.events[-1].content))

    def _append_ours(self, body: EventJson, *, chars: int) -> None:
        event = parsed(body)
        if event.parts:
            event = replace(event, part_tokens=(chars, *(0,) * (len(event.parts) - 1)))
        added = self._resolver.add(event)
        if isinstance(added.marker, Fold):
            sections = tuple(replace(section, tokens=chars) for section in added.marker.sections)
            added = replace(added, marker=replace(added.marker, sections=sections))
            assert added.marker is not None
            self._resolver.facts.markers[-1] = (added.seq, added.marker)
        self.events.append(added)
        self._seqs[added.id] = added.seq

    def adk_window(self, moment: Moment, *, summary_chars: int) -> Window | None:
        """Run google-adk's engine; what it appends is held back until :meth:`take`."""
        self._summarizer.window, self._summarizer.length = [], summary_chars
        before = len(self._session.events)
        asyncio.run(self._run(moment))
        self._made = self._session.events[before:]
        del self._session.events[before:]
        if not self._summarizer.window:
            return None
        seqs = tuple(
            self._seqs[event.id] for event in self._summarizer.window if event.id in self._seqs
        )
        return Window(seqs, has_seed=len(seqs) < len(self._summarizer.window))

    async def _run(self, moment: Moment) -> None:
        service = cast("Any", _Appends())
        if moment == "threshold":
            await adk._run_compaction_for_token_threshold(  # noqa: SLF001
                self._app, self._session, service
            )
            return
        config = self._app.events_compaction_config
        assert config is not None
        alone = config.model_copy(update={"token_threshold": None, "event_retention_size": None})
        app = self._app.model_copy(update={"events_compaction_config": alone})
        async for event in adk._run_compaction_for_sliding_window(  # noqa: SLF001
            app, self._session, service
        ):
            self._session.events.append(event)

    def take(self) -> None:
        """Append what google-adk made, to both."""
        for event in self._made:
            stamped = event.model_copy(update={"timestamp": self._session.events[-1].timestamp})
            self._session.events.append(stamped)
            compaction = event.actions.compaction
            assert compaction is not None
            body = stamped.model_dump(mode="json", by_alias=False, exclude_none=True)
            self._append_ours(body, chars=_chars(compaction.compacted_content))

    @property
    def prompt_tokens(self) -> int | None:
        """What google-adk takes the prompt to hold."""
        return adk._latest_prompt_token_count(  # noqa: SLF001
            _apply_rewinds(self._session.events)
        )

    @property
    def view(self) -> PlanView:
        """The log as our planner sees it."""
        return PlanView(facts_known(self._resolver, self.events), self.config.policy)

    def our_plan(self, moment: Moment) -> Plan | Nothing:
        """Return what we would fold."""
        facts = replace(
            facts_known(self._resolver, self.events), projected_tokens=self.prompt_tokens or 0
        )
        return plan_compaction(facts, self.config.policy, moment=moment)

    def our_window(self, moment: Moment) -> Window | None:
        """Return what we would read for it."""
        plan = self.our_plan(moment)
        if isinstance(plan, Nothing):
            return None
        (section,) = plan.sections
        seqs = tuple(seq for low, high in section.seqs for seq in range(low, high + 1))
        ordinary = tuple(seq for seq in seqs if self.events[seq - 1].marker is None)
        return Window(ordinary, has_seed=bool(section.seed_fold_seqs))


def _chars(content: types.Content | None) -> int:
    return 0 if content is None else len(content.model_dump_json(exclude_none=True))


def differences(
    both: SideBySide, moment: Moment, adks: Window | None, ours: Window | None
) -> set[str]:
    """Return which of our rules, that google-adk has not, may bear on these windows.

    ``cap``, ``grown``: a window holds as many new invocations as the interval says, and more only
    where so few are not worth it.
    ``question``: what the user asks is held back, and an open invocation is not counted.
    ``holes``: a call without a result is stepped over, whether it is open or dead; so is what
    answers a call that is folded already.
    ``response``: the events of one response stay together.
    ``progress``: a fold by size has to free something that matters.
    ``between``: a summary of which nothing is left, since two others cover it between them, counts
    as saved; google-adk compares ranges two by two.
    ``margin``: google-adk takes the braces of an empty summary for part of what is left.
    """
    view = both.view
    reach = {seq for window in (adks, ours) if window is not None for seq in window.seqs}
    span = (min(reach), max(reach)) if reach else (1, len(both.events))
    found: set[str] = set()
    is_open = view.open_invocation is not None
    if is_open and (moment == "interval" or any(span[0] <= q <= span[1] for q in view.held)):
        found.add("question")
    if is_open and any(q <= span[1] for q in view.held):
        found.add("question")
    if _has_holes(view, both.events):
        found.add("holes")
    if adks is not None and view.boundaries.latest_cut(adks.seqs[-1]) != adks.seqs[-1]:
        found.add("response")
    plan = both.our_plan(moment)
    if isinstance(plan, Nothing) and plan.reason == "no_progress":
        found.add("progress")
    if moment == "interval" and len(_new(view)) > (both.config.interval or 0):
        found.add("cap")
    if isinstance(plan, Plan) and _is_between(view, plan):
        found.add("between")
    if isinstance(plan, Plan) and adks is None:
        spare = plan.tokens_before - view.last_summary_tokens
        if spare <= EMPTY_SUMMARY_CHARS:
            found.add("margin")
    return found


def _has_holes(view: PlanView, events: Sequence[Event]) -> bool:
    answered = {
        (owner.seq, owner.part_index) for event in events for owner in event.owners if owner
    }
    for event in events:
        for part_index, part in enumerate(event.parts):
            if isinstance(part, FunctionCall) and (event.seq, part_index) not in answered:
                return True
    masked = view.masked
    return any(
        owner is None or contains(masked, owner) or contains(view.index.rewound, owner)
        for event in view.live
        for owner in event.owner_seqs
    )


def _is_between(view: PlanView, plan: Plan) -> bool:
    for shown in view.folds:
        belongs = union(pair for section in shown.sections for pair in section.belongs)
        covers = union(pair for ranges in shown.covers_by_lane.values() for pair in ranges)
        if not subtract(belongs, plan.covers) and subtract(covers, plan.covers):
            return True
    return False


def _new(view: PlanView) -> Sequence[str]:
    """Return the invocations that have something live."""
    return [
        invocation.key
        for invocation in view.invocations
        if any(view.index.is_live(event.seq) for event in invocation.events)
    ]


def described(both: SideBySide) -> Iterable[str]:
    """Tell the stream, an event a line, for a failing test."""
    for event in both.events:
        what = event.marker or [type(part).__name__ for part in event.parts]
        owners = [owner and owner.seq for owner in event.owners]
        yield f"{event.seq} {event.invocation_id} {event.author} {what} {owners or ''}"
