"""What compaction costs and saves in prompt-cache prices, over recorded sessions.

    python -m tests.benchmarks.simulate_prices                 the table
    python -m tests.benchmarks.simulate_prices --json FILE     and everything as JSON

Every model call of a session is made again, in memory, with the real planner, summaries and
pipeline: what would have been sent at that moment, which part of it the request before had in
common, and how long before that was. A provider reads the common part from its cache at a lower
price, unless the pause was longer than its cache lives. Compared are:

    none        nothing is folded
    dropped     the list of messages is cut: above the threshold its oldest messages go
    adk         google-adk's interval compaction, three invocations with one of overlap
    immediate   folds are used at once: each makes the next request be read anew
    staged      folds wait for a pause that outlives the cache, or until the budget is reached

Waiting costs as well: each request meanwhile reads from the cache what the fold would have taken
away. So beside the table stands after how many requests a fold that is used at once has paid for
the request that it makes be read anew, and how many requests the next pause is away.

Prices and lifetimes come from the dated model rules. Output is left out, being the same for all;
what a model would take for the summaries is told apart. Sessions are told twice: with their own
timestamps, and as if the person had taken ten times as long before each message.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final, Literal, TypeAlias

from app.core.compaction.extractive import extract_section
from app.core.compaction.facts import facts_known
from app.core.compaction.ledger import print_section
from app.core.compaction.plan import plan_next
from app.core.compaction.planned import Plan, PlannedSection
from app.core.compaction.policy import CompactionPolicy
from app.core.compaction.section_budget import section_budget
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.pipeline import run_pipeline
from app.core.contents import Part, Text
from app.core.copying import replace
from app.core.events import Activation, ActivationRequest, Event, Fold, Section
from app.core.index import Index, resolve
from app.core.lanes import Lane, Reader
from app.core.model_rules import PRICE_UNIT, ModelRule, ModelRules
from app.core.prices import input_price
from app.core.ranges import FOREVER
from app.core.resolve import Facts, Resolver
from app.core.tokens import part_tokens
from app.formats import CONVERTERS, FORMATS
from app.formats.adk import parse_event
from app.providers.model_rules import load_model_rules
from app.providers.tokenizer import Tokenizer
from tests.benchmarks.measuring import table
from tests.conftest import SHARED_DIR
from tests.readers import Session, read_all

Way: TypeAlias = Literal["none", "dropped", "adk", "immediate", "staged"]
WAYS: Final[tuple[Way, ...]] = ("none", "dropped", "adk", "immediate", "staged")
#: Ways that fold by the policy of a room; the others have nothing to do with it.
BY_POLICY: Final[tuple[Way, ...]] = ("immediate", "staged")

#: One current model of each provider.
MODELS: Final = ("claude-sonnet-5", "gpt-5.4", "gemini-3.1-pro")
#: Shorter sessions never fold twice.
LEAST_TOKENS: Final = 100_000
#: How much longer the person takes in the second telling.
SLOWER: Final = 10
#: Instructions and tools of a usual agent, and those of a summarizer.
OPENING_TOKENS: Final = 6_000
SUMMARIZER_TOKENS: Final = 600

_COUNT: Final = Tokenizer().count


@dataclass(frozen=True, slots=True)
class Room:
    """A policy, and what a request may take at most: above it, staged folds are used at once."""

    name: str
    policy: CompactionPolicy
    budget_tokens: int


#: Where a list of messages is cut, and folds of the first room begin.
THRESHOLD: Final = 40_000

ADK: Final = CompactionPolicy(strategy="interval", compaction_interval=3, overlap_size=1)

ROOMS: Final = (
    # Nearly everything is folded at once, so that requests stay small.
    Room(
        "threshold 40k",
        CompactionPolicy(strategy="threshold", token_threshold=THRESHOLD, event_retention_size=20),
        120_000,
    ),
    # As late as possible, and only the oldest third.
    Room("auto, window 150k", CompactionPolicy(strategy="auto", context_window=150_000), 150_000),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One model call."""

    tokens: int
    #: Of the beginning that the request before had too.
    shared_tokens: int
    #: Seconds since the request before; None for the first.
    idle_s: float | None
    #: It is the first to read a new fold.
    is_folded: bool = False


@dataclass(slots=True)
class Run:
    """One session, one way."""

    requests: list[Request] = field(default_factory=list)
    folds: int = 0
    activations: int = 0
    #: Read and written by a model that makes the summaries.
    summarized_tokens: int = 0
    summary_tokens: int = 0


class Replay:
    """A session that happens again, in one of the ways."""

    def __init__(self, room: Room, way: Way, *, ttl_s: float) -> None:
        self._room = room
        self._way: Way = way
        self._ttl_s = ttl_s
        policy = ADK if way == "adk" else room.policy
        self._policy = replace(policy, is_staged=way == "staged")
        self._resolver = Resolver(Facts())
        self._events: list[Event] = []
        self._before: tuple[CompileResult, float] | None = None
        self._now_s = 0.0
        self._tried_tokens = 0
        self._has_folded = False
        #: Of a list that is cut: the first message that is left.
        self._first = 0
        self.run = Run()

    def play(self, events: Sequence[Event]) -> Run:
        """Append the events one by one, with a request before every reply."""
        for event in events:
            if event.is_model:
                if not self._events or not self._events[-1].is_model:
                    self._request()
                self._append(event)
                continue
            self._now_s = max(self._now_s, event.timestamp)
            self._append(event)
            self._activate()
            if self._way == "adk" and not event.responses:
                # The invocation before is complete.
                self._fold(0)
        return self.run

    # Requests

    def _request(self) -> None:
        if self._way == "dropped":
            self._drop()
        result = self._compiled(self._resolver.facts.index)
        if _tokens(result) > self._room.budget_tokens and self._resolver.facts.index.staged:
            result = self._compiled(self._with_staged())
        idle_s = None if self._before is None else self._now_s - self._before[1]
        shared = 0 if self._before is None else _shared(self._before[0], result)
        self.run.requests.append(
            Request(_tokens(result), shared, idle_s, is_folded=self._has_folded)
        )
        self._has_folded = False
        self._before = (result, self._now_s)
        trigger = self._policy.trigger_tokens or 0
        if self._way in BY_POLICY and _tokens(result) > max(trigger, self._tried_tokens):
            # In the background: the next request is the first that can see it.
            self._fold(_tokens(result))

    def _compiled(self, index: Index) -> CompileResult:
        inputs = CompileInput(
            options=CompileOptions(reader=Reader()),
            format=FORMATS["native"],
            index=index,
            compiled_seq=self._resolver.facts.head_seq,
        )
        return run_pipeline(tuple(self._events[self._first :]), inputs)

    def _drop(self) -> None:
        """Cut the list's oldest messages; no result is left without its call."""
        tokens = [sum(event.part_tokens) for event in self._events]
        left = OPENING_TOKENS + sum(tokens[self._first :])
        while left > THRESHOLD and self._first < len(self._events) - 1:
            left -= tokens[self._first]
            self._first += 1
            while self._events[self._first].responses and self._first < len(self._events) - 1:
                left -= tokens[self._first]
                self._first += 1

    def _with_staged(self) -> Index:
        facts = self._resolver.facts
        activations = [
            (FOREVER + number, Activation(seq)) for number, seq in enumerate(facts.index.staged)
        ]
        return resolve([*facts.markers, *activations])

    # The log

    def _append(self, event: Event) -> None:
        self._events.append(self._resolver.add(event))

    def _activate(self) -> None:
        """Use what is staged if the cache is cold, as an append does."""
        if self._before is None or self._now_s - self._before[1] <= self._ttl_s:
            return
        for seq in self._resolver.facts.index.staged:
            self._append(Event(author="user", request=ActivationRequest(seq)))
            self.run.activations += 1

    def _fold(self, tokens: int) -> None:
        plan = plan_next(facts_known(self._resolver, self._events), self._policy)
        if not isinstance(plan, Plan):
            self._tried_tokens = tokens + tokens // 20
            return
        summaries: dict[Lane, tuple[Part, ...]] = {}
        for section in plan.sections:
            said = self._summary(section)
            summaries[section.lane] = (Text(text=said),)
            self.run.summarized_tokens += section.tokens + SUMMARIZER_TOKENS
            self.run.summary_tokens += _COUNT(said)
        self._append(Event(author="user", request=plan.fold_request(summaries)))
        self._count()
        self.run.folds += 1
        self._has_folded = True
        self._tried_tokens = 0

    def _summary(self, section: PlannedSection) -> str:
        by_seq = {event.seq: event for event in self._events}
        covered = tuple(
            by_seq[seq]
            for start, end in section.seqs
            for seq in range(start, end + 1)
            if seq in by_seq
        )
        seed = "\n".join(
            part.text
            for fold_seq in section.seed_fold_seqs
            for told in _sections(by_seq[fold_seq])
            if told.lane == section.lane
            for part in told.parts
            if isinstance(part, Text)
        )
        tokens = sum(sum(event.part_tokens) for event in covered)
        budget = section_budget(tokens, _COUNT(seed), None)
        return print_section(extract_section(covered, seed or None, budget=budget, count=_COUNT))

    def _count(self) -> None:
        """Give the newest fold's sections their tokens, as an append does."""
        event = self._events[-1]
        sections = tuple(
            replace(section, tokens=sum(part_tokens(part, _COUNT) for part in section.parts))
            for section in _sections(event)
        )
        assert isinstance(event.marker, Fold)
        marker = replace(event.marker, sections=sections)
        self._events[-1] = replace(event, marker=marker)
        self._resolver.facts.markers[-1] = (event.seq, marker)


def _sections(event: Event) -> Sequence[Section]:
    assert isinstance(event.marker, Fold)
    return event.marker.sections


def _tokens(result: CompileResult) -> int:
    parts = (placed for content in result.contents for placed in content.parts)
    return OPENING_TOKENS + sum(placed.tokens for placed in parts)


def _shared(before: CompileResult, now: CompileResult) -> int:
    """Return the tokens of the parts that both begin with."""
    count = 0
    for ours, theirs in zip(now.chain, before.chain, strict=False):
        if ours != theirs:
            break
        count += 1
    parts = [part.placed for content in now.rendered for part in content.parts]
    return OPENING_TOKENS + sum(placed.tokens for placed in parts[: max(0, count - 1)])


# Prices


@dataclass(frozen=True, slots=True)
class Price:
    """What all requests of a run take."""

    input: float
    cached_share: float
    summaries: float


def priced(run: Run, rule: ModelRule) -> Price:
    """Return what a run costs with a model."""
    cost, cached, total = 0.0, 0, 0
    for request in run.requests:
        tokens = request.tokens * rule.tokenizer.percent // 100
        hit = _cached_tokens(request, rule) * rule.tokenizer.percent // 100
        price = input_price(rule, tokens, cached_tokens=hit)
        assert price is not None
        cost += price
        cached, total = cached + hit, total + tokens
    prices = rule.prices
    assert prices is not None
    summaries = run.summarized_tokens * prices.input + run.summary_tokens * prices.output
    return Price(cost, cached / total if total else 0.0, summaries / PRICE_UNIT)


def paid_after(run: Run, rule: ModelRule) -> Iterator[tuple[float, int | None]]:
    """Yield of each fold after how many requests it has paid for itself, and how many requests
    later the next pause outlives the cache; None: there is none."""
    prices = rule.prices
    assert prices is not None
    written = prices.input if prices.write_5m is None else prices.write_5m
    read = prices.input if prices.cached_read is None else prices.cached_read
    for number, request in enumerate(run.requests):
        saved = run.requests[number - 1].tokens - request.tokens if number else 0
        if not request.is_folded or saved <= 0:
            continue
        anew = request.tokens - request.shared_tokens
        later = run.requests[number:]
        pause = next((n for n, r in enumerate(later) if (r.idle_s or 0) > ttl_of(rule)), None)
        yield anew * (written - read) / (saved * read), pause


def _cached_tokens(request: Request, rule: ModelRule) -> int:
    is_warm = request.idle_s is not None and request.idle_s <= ttl_of(rule)
    is_long = request.shared_tokens >= rule.cache.min_tokens
    return request.shared_tokens if is_warm and is_long else 0


def ttl_of(rule: ModelRule) -> int:
    """Return how long an entry of the usual kind lives."""
    return min(rule.cache.ttls_s.values())


# Sessions


def sessions(data: Path) -> Iterator[tuple[str, list[Event]]]:
    """Yield the sessions that are long enough and say when things happened."""
    for session in read_all(data):
        events = list(_events(session))
        tokens = sum(sum(event.part_tokens) for event in events)
        if tokens >= LEAST_TOKENS and all(event.timestamp for event in events):
            yield session.name, events


def _events(session: Session) -> Iterator[Event]:
    """Yield the events as an append would prepare them, without another tool's compactions."""
    convert = CONVERTERS[session.format]
    invocation = 0
    for item in session.items:
        for body in convert(item, agent=session.agent):
            parsed = parse_event(body)
            event = parsed.event
            if parsed.is_partial or event.request is not None or event.role is None:
                continue
            tokens = tuple(part_tokens(part, _COUNT) for part in event.parts)
            if not event.is_model and not event.responses:
                invocation += 1
            yield replace(event, part_tokens=tokens, invocation_id=f"i{invocation}")


def slower(events: Sequence[Event]) -> list[Event]:
    """Return the events as if the person had taken longer before each message."""
    told: list[Event] = []
    added_s, before_s = 0.0, events[0].timestamp if events else 0.0
    for event in events:
        if not event.is_model and not event.responses:
            added_s += max(0.0, event.timestamp - before_s) * (SLOWER - 1)
        before_s = max(before_s, event.timestamp)
        told.append(replace(event, timestamp=event.timestamp + added_s))
    return told


# The run


@dataclass(frozen=True, slots=True)
class Row:
    """All sessions, one model, one way."""

    told: str
    room: str
    model: str
    ttl_s: int
    way: Way
    requests: int
    folds: int
    activations: int
    mean_tokens: int
    cached_share: float
    input_price: float
    summaries_price: float
    #: Medians, of folds that are used at once: after how many requests one has paid for itself, and
    #: how many requests the next pause is away, where there is one.
    paid_after: float | None
    pause_after: float | None


def simulate(told: str, logs: Sequence[Sequence[Event]], rules: ModelRules) -> Iterator[Row]:
    """Yield the rows of one telling."""
    runs: dict[tuple[str, Way, int], list[Run]] = {}
    for model, room in product(MODELS, ROOMS):
        rule = rules.find(model)
        assert rule is not None
        for way in WAYS if room is ROOMS[0] else BY_POLICY:
            # Only what is staged looks at how long a cache lives.
            ttl_s = ttl_of(rule) if way == "staged" else 0
            known = (room.name, way, ttl_s)
            if known not in runs:
                print(f"{told}: {known}", file=sys.stderr, flush=True)
                runs[known] = [Replay(room, way, ttl_s=ttl_s).play(events) for events in logs]
            name = room.name if way in BY_POLICY else ""
            yield _row((told, name, model), way, rule, runs[known])


def _row(names: tuple[str, str, str], way: Way, rule: ModelRule, runs: Sequence[Run]) -> Row:
    told, room, model = names
    prices = [priced(run, rule) for run in runs]
    requests = [request for run in runs for request in run.requests]
    total = sum(request.tokens for request in requests)
    shares = [
        price.cached_share * sum(r.tokens for r in run.requests)
        for price, run in zip(prices, runs, strict=True)
    ]
    paid = [each for run in runs for each in paid_after(run, rule)] if way == "immediate" else []
    pauses = [pause for _, pause in paid if pause is not None]
    return Row(
        told=told,
        room=room,
        model=model,
        ttl_s=ttl_of(rule),
        way=way,
        requests=len(requests),
        folds=sum(run.folds for run in runs),
        activations=sum(run.activations for run in runs),
        mean_tokens=total // max(1, len(requests)),
        cached_share=sum(shares) / max(1, total),
        input_price=sum(price.input for price in prices),
        summaries_price=sum(price.summaries for price in prices),
        paid_after=median(after for after, _ in paid) if paid else None,
        pause_after=median(pauses) if pauses else None,
    )


HEADER: Final = (
    "timestamps",
    "model",
    "cache lives",
    "policy",
    "folds are used",
    "folds",
    "activated",
    "tokens/request",
    "from cache",
    "input",
    "summaries by the model",
    "paid after",
    "pause after",
)


_USED: Final[Mapping[Way, str]] = {
    "none": "no folds",
    "dropped": "oldest dropped at 40k",
    "adk": "google-adk, every 3",
    "immediate": "at once",
    "staged": "at a pause",
}


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    return [
        row.told,
        row.model,
        f"{row.ttl_s // 60} min",
        row.room,
        _USED[row.way],
        str(row.folds),
        str(row.activations),
        f"{row.mean_tokens:,}",
        f"{row.cached_share:.0%}",
        f"${row.input_price:,.2f}",
        f"${row.summaries_price:,.2f}" if row.folds else "",
        "" if row.paid_after is None else f"{row.paid_after:.1f} requests",
        "" if row.pause_after is None else f"{row.pause_after:.0f} requests",
    ]


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=SHARED_DIR / "data")
    parser.add_argument("--json", type=Path, help="write everything there")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"no recorded sessions: {arguments.data} is missing; set FOLDLINE_SHARED_DIR")
        return 0
    rules = load_model_rules()
    found = list(sessions(arguments.data))
    names = ", ".join(f"{name} ({len(events)} events)" for name, events in found)
    print(f"prices of {rules.date} in {rules.currency}; {names}", flush=True)
    recorded = [events for _, events in found]
    rows = [
        *simulate("recorded", recorded, rules),
        *simulate(f"{SLOWER}x slower", [slower(events) for events in recorded], rules),
    ]
    print(table(HEADER, [cells(row) for row in rows]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
