"""Streams on which other systems' compaction failed, in the notation of their collection.

``U A`` a user's and a model's text, ``C1,2`` calls of one event, ``R1,2`` their results in one
event, ``K`` thinking ahead of the next call, ``:n`` characters, ``(...)xN`` repeats, ``#`` numbers
ids. Every ``U`` begins an invocation.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.core.compaction.planned import Nothing, Plan
from app.core.compaction.policy import CompactionPolicy
from app.core.compaction.view import PlanView
from app.core.contents import Part
from app.core.copying import replace
from app.core.events import Event
from app.core.ranges import contains
from tests.builders import call_part, model, response, response_part, thought, user
from tests.planning import Session, covers_of, policy, reason_of

STREAMS: Final = {
    "strands#465": "U (C# R#)x6",
    "strands#578": "(U C# R# A)x20",
    "strands#152": "U (C# R#:4000)x40",
    "strands#3339": "(U C# R#:2000 A)x25",
    "strands#3505": "U (C# R#:60000)x5",
    "strands#2025": "U C1 U",
    "strands#1123": "U C1 U A U",
    "strands#4154": "U A R9 A U",
    "strands#611": "U A U A U A U A U A U A U",
    "strands#4341": "U C1 R1:50 C2 R2:90000 A U",
    "langchain#38352": "U C1,2 R1,2 R3 A U",
    "langchain#34184": "U A U C1,2,3,4,5,6,7,8 R1,2,3,4,5,6,7,8 A",
    "langchain#39261": "U (C# R#:3000)x10",
    "langmem#111": "U C1 R1:30000",
    "langmem#118": "(U C# R# A)x10",
    "langmem#126": "U C1,2,3 R1,2,3 A U",
    "OpenHands#8630": "U:50000 (C# R#:100)x3",
    "OpenHands#10873": "U:90000 A U A U",
    "OpenHands#2255": "U (K C# R#)x60",
    "OpenHands#1172": "U C1 R1:2000000 A",
    "claude-code#26317": "(U A:9000)x120",
    "claude-code#24670": "R1 A U A U",
    "claude-code#4093": "U A C1 U",
    "openclaw#19048": "U C1 R1 C2 U A U",
    "codex#40213": "U:1800000 (C# R#)x4",
    "codex#23589": "(U A:8000)x150",
    "gemini-cli#3574": "U:40 A:40 U:40 A:40",
    "gemini-cli#16516": "(U A:40000)x120",
    "gemini-cli#8586": "U:3200000 A U",
    "opencode#14825": "U (C# R#:20000)x20 A U",
}

POLICIES: Final = {
    "interval": policy(strategy="interval", compaction_interval=2, overlap_size=1),
    "threshold": policy(strategy="threshold", token_threshold=2_000, event_retention_size=4),
    "both": policy(
        strategy="both",
        compaction_interval=3,
        overlap_size=0,
        token_threshold=2_000,
        event_retention_size=2,
    ),
    "window": policy(strategy="window", window_size=5),
    "auto": policy(strategy="auto", context_window=20_000, preserve_recent=4, fanout=4),
}
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
every_policy = pytest.mark.parametrize("chosen", POLICIES.values(), ids=POLICIES.keys())


def events_of(stream: str, *, most_repeats: int = 1_000) -> Iterator[Event]:
    """Yield the events of a stream."""
    invocation = 0
    leading: tuple[Part, ...] = ()
    for word in _words(stream, most_repeats):
        match = re.fullmatch(r"([A-Z])([\d,]*)(?::(\d+))?", word)
        assert match, word
        kind, ids, size = match[1], match[2].split(","), match[3]
        tokens = max(1, int(size or 20) // 4)
        invocation += kind == "U" or not invocation
        fields: dict[str, Any] = {
            "invocation_id": f"i{invocation}",
            "part_tokens": (tokens, *(1,) * (len(ids) - 1 + len(leading))),
        }
        parts: tuple[Part, ...]
        match kind:
            case "U":
                yield user("u", **fields)
            case "A":
                yield model("a", **fields)
            case "C":
                parts = (*leading, *(call_part("t", id=call_id) for call_id in ids))
                yield model(*parts, **fields)
            case "R":
                parts = tuple(response_part(call_id, name="t") for call_id in ids)
                yield replace(response(ids[0], **fields), parts=parts)
        leading = (thought("hm"),) if kind == "K" else ()


def _words(stream: str, most_repeats: int) -> Iterator[str]:
    number = 0
    for group, times, word in re.findall(r"\(([^)]*)\)x(\d+)|(\S+)", stream):
        if word:
            yield word
        for _ in range(min(int(times or 0), most_repeats)):
            number += 1
            yield from group.replace("#", str(number)).split()


@every_stream
@every_policy
def test_folding_as_the_log_grows_never_loops_and_never_splits(
    stream: str, chosen: CompactionPolicy
) -> None:
    session = Session()
    folded: list[Plan] = []
    for event in events_of(stream, most_repeats=20):
        session.append(event)
        folded.extend(session.fold_all(chosen, most=20))
        _check_standing(session)
    # A fold for every event would be a loop that is only slower.
    if chosen.strategy != "window":
        assert len(folded) <= len(session.log.events) / 2 + 1


def _check_standing(session: Session) -> None:
    log = session.log
    view = PlanView(session.facts(), policy(strategy="none"))
    asked = [event.seq for event in view.live if event.is_user_message]
    if view.open_invocation is not None and view.held:
        assert asked[-1] == view.held[-1]
    for event in log.events:
        for owner in event.owners:
            if owner is not None:
                assert log.index.is_live(owner.seq) == log.index.is_live(event.seq)


@every_stream
@every_policy
def test_a_log_that_came_whole_is_folded_in_a_bounded_number_of_steps(
    stream: str, chosen: CompactionPolicy
) -> None:
    session = Session(*events_of(stream))
    session.fold_all(chosen, most=len(session.log.events))
    last = session.plan(chosen)
    assert isinstance(last, Nothing)
    assert last.reason
    assert last.detail


def test_the_newest_ask_stays_when_a_result_fills_the_window() -> None:
    # langmem#111: only the system text was left.
    session = Session(*events_of("U C1 R1:30000"))
    for chosen in POLICIES.values():
        session.fold_all(chosen)
        assert session.log.index.is_live(1)


def test_a_pure_tool_loop_is_folded_between_its_pairs() -> None:
    # langchain#39261, strands#3505: there is no user message in what is to be trimmed.
    session = Session(*events_of("U (C# R#:60000)x5"))
    assert covers_of(session.plan(POLICIES["threshold"])) == ((2, 7),)


def test_a_log_that_cannot_shrink_says_so() -> None:
    # OpenHands#8630: condensation that frees next to nothing, over and over.
    session = Session(*events_of("U:50000 (C# R#:100)x3"))
    assert reason_of(session.plan(POLICIES["threshold"])) == "no_progress"


def test_a_smaller_limit_on_the_same_log_folds_what_can_go_and_then_refuses() -> None:
    # OpenHands#10873: after the model was switched it kept 5 and forgot 0, without end.
    session = Session(*events_of("U:90000 A U A U"))
    large = policy(strategy="auto", context_window=200_000, preserve_recent=1)
    assert reason_of(session.plan(large)) == "below_threshold"
    small = replace(large, context_window=8_000)
    assert len(session.fold_all(small)) == 1
    assert isinstance(session.plan(small), Nothing)


def test_all_results_of_a_message_fold_with_it() -> None:
    # langchain#38352 and langmem#126.
    session = Session(*events_of("U C1,2,3 R1 R2 A U A"))
    for size in range(1, 7):
        chosen = policy(strategy="threshold", token_threshold=1, event_retention_size=size)
        plan = session.plan(chosen)
        if isinstance(plan, Plan):
            assert len({contains(plan.covers, seq) for seq in (2, 3, 4)}) == 1


def test_a_new_summary_covers_the_one_before() -> None:
    # langmem#118.
    session = Session()
    for event in events_of("(U C# R# A)x10"):
        session.append(event)
        session.fold_all(policy(strategy="threshold", token_threshold=15, event_retention_size=2))
        assert len(session.log.index.sections) <= 1 + (event.author != "bot") + 1


def test_what_was_folded_is_not_folded_again_for_a_stale_count() -> None:
    # gemini-cli#8586: compressed twice in a row.
    session = Session(*events_of("U:3200000 A U"))
    chosen = policy(strategy="threshold", token_threshold=100_000, event_retention_size=1)
    plan = session.plan(chosen, "threshold", projected_tokens=800_000)
    assert isinstance(plan, Plan)
    session.fold(plan)
    assert (
        reason_of(session.plan(chosen, "threshold", projected_tokens=800_000)) != "below_threshold"
    )
    assert isinstance(session.plan(chosen, "threshold", projected_tokens=800_000), Nothing)
