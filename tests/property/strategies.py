"""Random logs: everything that can be appended, in any order, drawn as short lists of plain steps.

A step is drawn without looking at the log and made into an event when its turn comes, so that
hypothesis can drop steps while it shrinks. A step that the log refuses (a rewind to nothing, a fold
of nothing) is left out, as a caller would be told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from app.core.contents import FunctionCall, FunctionResponse, InlineData, Part, Text
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.events import (
    ActivationRequest,
    ElisionRequest,
    Event,
    FoldRequest,
    MarkerRequest,
    PinRequest,
    RewindRequest,
    SectionRequest,
    TimedCompactionRequest,
    UndoRequest,
    UnpinRequest,
)
from app.core.lanes import Lane
from app.core.resolve import Facts, Log, Resolver
from tests.builders import rough_tokens

#: The reader's agent, another one, and the lanes they stand in. Most events are of one lane and
#: agent: what goes wrong there matters most.
AGENTS: Final = ("a", "a", "a", "b")
LANES: Final = (
    Lane(),
    Lane(),
    Lane(),
    Lane(branch="r"),
    Lane(branch="r.x"),
    Lane(branch="r.t@c1"),
    Lane(isolation_scope="s"),
)
CALL_IDS: Final = ("c1", "c2", "c3", None)
#: Characters that are worth leaving out.
LONG: Final = 80
RESPONSE_IDS: Final = (None, None, "r1", "r2")


@dataclass(frozen=True)
class Step:
    """One thing that happens. Positions are taken modulo what is there."""

    kind: str
    author: str = "a"
    lane: Lane = LANES[0]
    invocation: int = 1
    #: Call ids, for calls and responses.
    ids: tuple[str | None, ...] = ()
    #: How far before the head a reply was compiled; None: it does not say.
    lag: int | None = None
    response_id: str | None = None
    #: Positions for markers, counted back from the head.
    first: int = 0
    second: int = 0
    timestamp: int | None = None
    flavour: int = 0


def steps(*, markers: bool = True, max_size: int = 14) -> st.SearchStrategy[list[Step]]:
    """Draw steps of a log."""
    ordinary = ["user", "user", "model", "model", "call", "call", "result", "result", "mixed"]
    marking = ["rewind", "rewind_to", "fold", "fold", "timed", "pin", "unpin", "undo", "activate"]
    marking += ["elide"]
    step = st.builds(
        Step,
        kind=st.sampled_from(ordinary * 2 + marking if markers else ordinary),
        author=st.sampled_from(AGENTS),
        lane=st.sampled_from(LANES),
        invocation=st.integers(1, 3),
        ids=st.lists(st.sampled_from(CALL_IDS), min_size=1, max_size=3).map(tuple),
        lag=st.sampled_from((None, None, 0, 1, 2, 4)),
        response_id=st.sampled_from(RESPONSE_IDS),
        first=st.integers(0, 8),
        second=st.integers(0, 8),
        timestamp=st.sampled_from((None, None, None, 1, 3, 5)),
        flavour=st.integers(0, 9),
    )
    return st.lists(step, max_size=max_size)


def build(drawn: Sequence[Step]) -> tuple[list[Event], Log]:
    """Append the steps to an empty log in memory.

    Returns:
        The events as a caller would send them (refused ones left out), and the log that they make.
    """
    resolver = Resolver(Facts())
    sent: list[Event] = []
    resolved: list[Event] = []
    for step in drawn:
        event = _event(step, resolver.facts.head_seq + 1, resolved)
        if event is None:
            continue
        try:
            added = resolver.add(event)
        except InvalidInputError:
            continue
        sent.append(event)
        resolved.append(added)
    return sent, Log(tuple(resolved), resolver.facts.index)


def _event(step: Step, seq: int, log: Sequence[Event]) -> Event | None:
    event = Event(
        id=f"e{seq}",
        author=step.author,
        invocation_id=f"i{step.invocation}",
        timestamp=float(seq if step.timestamp is None else step.timestamp),
        lane=step.lane,
    )
    if step.kind in _PARTS:
        author = "user" if step.kind == "user" else step.author
        parts = _PARTS[step.kind](step, seq)
        role = "user" if step.kind in ("user", "result") or _calls_as_user(step) else "model"
        tokens = tuple(map(rough_tokens, parts))
        event = replace(event, author=author, role=role, parts=parts, part_tokens=tokens)
        if role == "model":
            compiled_seq = None if step.lag is None else max(0, seq - 1 - step.lag)
            event = replace(event, response_id=step.response_id, compiled_seq=compiled_seq)
        return event
    request = _request(step, seq, log)
    return None if request is None else replace(event, author="user", request=request)


def _tag(step: Step, seq: int) -> str:
    """Say in the text where it stands, so that a reader who should not see it is caught."""
    tag = f"[{seq}|{step.lane.isolation_scope or ''}|{step.lane.branch}]"
    # Long enough for a stub to be shorter.
    return tag + "." * LONG if step.flavour > 4 else tag


def _is_thought(step: Step) -> bool:
    """Tell whether a call or a result is marked as a thought, as some logs have it."""
    return step.flavour == 9


def _calls_as_user(step: Step) -> bool:
    """Tell whether a call comes in the user's role, as ADK's requests for a confirmation do."""
    return step.kind == "call" and step.flavour == 8


def _user(step: Step, seq: int) -> tuple[Part, ...]:
    if step.flavour == 0:
        return (InlineData(mime_type="image/png", data="AAAA"), Text(text=_tag(step, seq)))
    if step.flavour == 1:
        return (Text(text="  "),)
    return (Text(text=_tag(step, seq)),)


def _model(step: Step, seq: int) -> tuple[Part, ...]:
    thought = Text(text="hm", thought=True)
    if step.flavour == 0:
        return (thought,)
    if step.flavour == 1:
        return ()
    if step.flavour == 2:
        return (thought, Text(text=_tag(step, seq)))
    return (Text(text=_tag(step, seq)),)


def _call(step: Step, seq: int) -> tuple[Part, ...]:
    calls = tuple(
        FunctionCall(
            id=call_id, name="t", args=f'{{"at":"{_tag(step, seq)}"}}', thought=_is_thought(step)
        )
        for call_id in step.ids
    )
    if _calls_as_user(step):
        return (*calls, Text(text=_tag(step, seq)))
    return (Text(text=_tag(step, seq)), *calls) if step.flavour == 0 else calls


def _result(step: Step, seq: int) -> tuple[Part, ...]:
    results = tuple(
        FunctionResponse(
            id=call_id,
            name="t",
            response=f'{{"at":"{_tag(step, seq)}"}}',
            thought=_is_thought(step),
        )
        for call_id in step.ids
    )
    return (*results, Text(text=_tag(step, seq))) if step.flavour == 0 else results


def _mixed(step: Step, seq: int) -> tuple[Part, ...]:
    return (*_result(replace(step, ids=step.ids[:1]), seq), *_call(replace(step, flavour=1), seq))


_PARTS = {"user": _user, "model": _model, "call": _call, "result": _result, "mixed": _mixed}


def _request(step: Step, seq: int, log: Sequence[Event]) -> MarkerRequest | None:
    low, high = sorted((max(1, seq - 1 - step.first), max(1, seq - 1 - step.second)))
    lanes = sorted({(e.lane.isolation_scope or "", e.lane.branch) for e in log[low - 1 : high]})
    wanted = lanes[: 1 + step.flavour % 3]
    summary = tuple(
        SectionRequest(scope or None, branch, (Text(text=f"sum[{seq}|{scope}|{branch}]"),))
        for scope, branch in wanted
    )
    match step.kind:
        case "rewind":
            return RewindRequest(before_invocation_id=f"i{step.invocation}")
        case "rewind_to":
            return RewindRequest(to_seq=low)
        case "fold":
            return FoldRequest(low, high, summary, is_staged=step.flavour > 7) if summary else None
        case "timed":
            tag = f"sum[{seq}|{step.lane.isolation_scope or ''}|{step.lane.branch}]"
            return TimedCompactionRequest(float(low), float(high), (Text(text=tag),), "model")
        case "pin":
            return PinRequest((high,))
        case "unpin":
            return UnpinRequest((high,))
        case "elide":
            return ElisionRequest(tuple(range(low, high + 1)), step.flavour % 3)
        case "undo":
            return UndoRequest(high)
        case _:
            return ActivationRequest(high)
