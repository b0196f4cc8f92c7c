"""Put each function response next to its call; close what was never answered.

    1 u | 2 call(a) call(b) | 3 result(b) | 4 u | 5 result(a)            events, in read order
    1 u | 2 call(a) call(b) | 5 result(a) | 3 result(b) | 4 u            after the pass

Every call is answered exactly once, right after the response that it is a part of, in call order. A
call without a result gets a synthetic one; until the reader's next reply a real result still takes
its place, and the call is listed as pending. From that reply on the call is closed for good,
because the reply was written to a request in which it stood closed: a result that comes later is
*late* and is told as text where it stands, so that no earlier byte changes.

    1 u | 2 call(a) | 3 m | 4 result(a)
    1 u | 2 call(a) | "no result was recorded" | 3 m | "late: ..."

An event that calls is the model's, whatever role it was given. Of several results in time the last
one answers. Results whose call is not shown are dropped and reported. Under ``adk`` the rules are
ADK's (``spec/ADK.md`` B.8).
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from app.core.compile.adk.pairing import pair as adk_pair
from app.core.compile.inputs import CallKey, CompileInput, PendingCall, Report
from app.core.compile.no_result import NO_RESULT_TOKENS, no_result
from app.core.compile.order import is_reply
from app.core.compile.quoting import plain_name, quote
from app.core.contents import (
    TOOL_PARTS,
    FunctionCall,
    FunctionResponse,
    Part,
    Segment,
    Text,
)
from app.core.copying import replace
from app.core.events import Event, Events, Owner

#: What is said around a late result.
_TOLD_TOKENS: Final = 48


def tool_pairing(events: Events, inputs: CompileInput, report: Report) -> Events:
    """Return the events with every call answered right after its response."""
    if inputs.options.preset == "adk":
        return adk_pair(events, inputs, report)
    if not _has_tools(events):
        return events
    return _Pairing(inputs, report).run(events)


def _has_tools(events: Events) -> bool:
    for event in events:
        for part in event.parts:
            if type(part) in TOOL_PARTS:
                return True
    return False


class _Result(Struct):
    event: Event
    part: FunctionResponse
    tokens: int


class _Call(Struct):
    """A call that is shown."""

    event: Event
    part: FunctionCall
    response_seq: int
    result: _Result | None = None
    #: A reply of another response came after it.
    is_closed: bool = False


class _Group(Struct):
    """One response of the model: its events, and the calls in them."""

    response_seq: int
    events: list[Event] = []
    calls: list[_Call] = []


class _Pairing:
    """One run of the pass over one log."""

    def __init__(self, inputs: CompileInput, report: Report) -> None:
        self._inputs = inputs
        self._reader = inputs.options.reader
        self._report = report
        self._calls: dict[CallKey, _Call] = {}
        self._open: list[_Call] = []
        self._groups_and_events: list[_Group | Event] = []

    def run(self, events: Events) -> Events:
        for event in events:
            self._take(event)
        paired: list[Event] = []
        for item in self._groups_and_events:
            if isinstance(item, Event):
                paired.append(item)
            else:
                paired.extend(item.events)
                if item.calls:
                    paired.extend([self._answer(call) for call in item.calls])
        self._report.calls.extend(self._calls)
        return tuple(paired)

    def _take(self, event: Event) -> None:
        if event.place is not None and self._closes(event):
            self._close_before(event)
        has_calls = has_results = False
        for part in event.parts:
            kind = type(part)
            if kind is FunctionCall:
                has_calls = True
            elif kind is FunctionResponse:
                has_results = True
        if not has_results:
            if event.is_model:
                self._speak(event, event, has_calls=has_calls)
            else:
                self._groups_and_events.append(event)
            return
        if event.is_model:
            # The calls first: a result may stand in one event with its call.
            said: list[tuple[Part, int]] = [
                (part, tokens)
                for part, tokens in zip(event.parts, event.part_tokens, strict=True)
                if not isinstance(part, FunctionResponse)
            ]
            if said:
                self._speak(event, _with_parts(event, said), has_calls=has_calls)
            left = [(part, tokens) for part, tokens, is_told in self._settle_all(event) if is_told]
        else:
            left = [(part, tokens) for part, tokens, _ in self._settle_all(event)]
        if left:
            self._groups_and_events.append(_with_parts(event, left, role="user"))

    def _closes(self, event: Event) -> bool:
        """Tell whether the event is a reply where it stands; a call brought back is not."""
        return (
            event.kept_parts is None
            and event.segment is Segment.HISTORY
            and is_reply(event, self._reader)
        )

    def _close_before(self, reply: Event) -> None:
        """Close the open calls of every other response: the reply was written to them as closed."""
        if not self._open:
            return
        response_seq = _response_seq(reply)
        still_open: list[_Call] = []
        for call in self._open:
            if call.response_seq == response_seq:
                still_open.append(call)
            else:
                call.is_closed = True
        self._open = still_open

    def _settle_all(self, event: Event) -> list[tuple[Part, int, bool]]:
        """Hand the event's results to their calls.

        Returns:
            What is left of the event, in order: part, tokens, and whether it tells a late result.
        """
        left: list[tuple[Part, int, bool]] = []
        owners = iter(event.owners)
        for part, tokens in zip(event.parts, event.part_tokens, strict=True):
            if not isinstance(part, FunctionResponse):
                left.append((part, tokens, False))
                continue
            told = self._settle(_Result(event, part, tokens), next(owners, None))
            if told is not None:
                left.append((told, tokens + _TOLD_TOKENS, True))
        return left

    def _settle(self, result: _Result, owner: Owner | None) -> Text | None:
        """Give a result to its call, or return what is told of a late one."""
        seq = result.event.seq
        call = self._calls.get((owner.seq, owner.part_index)) if owner else None
        if owner is None or (call is None and not self._is_closed(owner)):
            self._report.repair("orphan_result", seq, "its call is not shown: dropped")
            return None
        if call is None or call.is_closed:
            self._report.repair("late_result", seq, "its call was closed by a reply: told as text")
            return _told(result.part, owner)
        if call.result is not None:
            self._report.repair("replaced", call.result.event.seq, f"seq {seq} answers instead")
        call.result = result
        return None

    def _is_closed(self, owner: Owner) -> bool:
        """Tell whether a call that is not among the events was shown, or would have been."""
        if (owner.seq, owner.part_index) in self._inputs.settled.calls:
            return True
        return self._inputs.index.fold_of(owner.seq) is not None and self._reader.sees(owner.lane)

    def _speak(self, event: Event, said: Event, *, has_calls: bool) -> None:
        """Add a model event to the response that it is a part of."""
        group = self._groups_and_events[-1] if self._groups_and_events else None
        response_seq = _response_seq(event)
        if not isinstance(group, _Group) or group.response_seq != response_seq:
            group = _Group(response_seq)
            self._groups_and_events.append(group)
        # In whatever role it came: ADK's requests for a confirmation have the user's.
        group.events.append(said if said.has_model_role else replace(said, role="model"))
        if not has_calls:
            return
        for part_index, part in _original_calls(event):
            call = _Call(event, part, response_seq)
            self._calls[event.seq, part_index] = call
            self._open.append(call)
            group.calls.append(call)

    def _answer(self, call: _Call) -> Event:
        """Return the event that answers a call."""
        if call.result is not None:
            event, part = call.result.event, call.result.part
            is_same = (part.id, part.name) == (call.part.id, call.part.name)
            if is_same and len(event.parts) == 1 and event.role == "user":
                # Nearly always. Copying events is a tenth of what a compile costs.
                return event
            part = replace(part, id=call.part.id, name=call.part.name)
            return replace(
                event,
                role="user",
                parts=(part,),
                part_tokens=(call.result.tokens,),
                owners=(None,),
            )
        if not call.is_closed:
            self._report.pending.append(PendingCall(call.part.id, call.part.name, call.event.seq))
        self._report.repair("synthetic_result", call.event.seq, f"no result of {call.part.name}")
        return Event(
            seq=call.event.seq,
            author=call.event.author,
            invocation_id=call.event.invocation_id,
            timestamp=call.event.timestamp,
            lane=call.event.lane,
            role="user",
            parts=(no_result(call.part),),
            part_tokens=(NO_RESULT_TOKENS,),
            owners=(None,),
        )


def _told(part: FunctionResponse, owner: Owner) -> Text:
    name = plain_name(part.name or owner.name)
    result = part.response if part.response_text is None else part.response_text
    return Text(
        text=f"The tool `{name}` answered an earlier call after you had gone on. "
        f"Its result, quoted as data:\n{quote(result)}"
    )


def _response_seq(event: Event) -> int:
    return event.place.response_seq if event.place else event.seq


def _original_calls(event: Event) -> Iterable[tuple[int, FunctionCall]]:
    """Yield each call with its index among the parts as appended."""
    indexes = event.kept_parts or range(len(event.parts))
    for part_index, part in zip(indexes, event.parts, strict=True):
        if isinstance(part, FunctionCall):
            yield part_index, part


def _with_parts(event: Event, parts: list[tuple[Part, int]], role: str | None = None) -> Event:
    return replace(
        event,
        role=role or event.role,
        parts=tuple(part for part, _ in parts),
        part_tokens=tuple(tokens for _, tokens in parts),
        owners=(),
    )
