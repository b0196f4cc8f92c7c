"""Event: one immutable entry of a session's log, as the passes read it.

``formats/adk.py`` makes events out of the JSON that callers send; what an event must know of the
events before it (its seq, owners, place, the ranges of a marker) is added at append by
:mod:`app.core.resolve` and stored with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from app.core.canonical import Json
from app.core.contents import (
    FunctionCall,
    FunctionResponse,
    Part,
    Segment,
    calls,
    responses,
)
from app.core.lanes import ROOT_LANE, Lane
from app.core.ranges import Ranges

USER: Final = "user"


class Owner(Struct, frozen=True):
    """The call that a function response answers. Resolved at append."""

    #: Seq of the event that holds the call.
    seq: int
    #: Index of the call among the parts of that event.
    part_index: int
    #: Author of that event.
    author: str
    #: Name of the called tool; results often come without it.
    name: str
    lane: Lane


class Place(Struct, frozen=True):
    """Where a model event is read, if it is a reply of the reader. Resolved at append."""

    #: Seq of the first event of the response that this event is a part of.
    response_seq: int
    #: It is read directly after this seq, for a reader of this author.
    after_seq: int
    #: The same for a reader who is no one in particular: no earlier reply of *anyone* in the lane
    #: is overtaken.
    after_any_seq: int


# What a marker asks for, before it is resolved to seqs.


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """Undo an invocation and all that followed (``before_invocation_id``), or keep up to a seq."""

    before_invocation_id: str | None = None
    to_seq: int | None = None


@dataclass(frozen=True, slots=True)
class TimedCompactionRequest:
    """An ADK compaction: times, both ends included, of the event's own branch and scope."""

    start_timestamp: float
    end_timestamp: float
    parts: tuple[Part, ...]
    role: str
    #: Go's holes: ``(invocation_id, timestamp)`` pairs that are not covered.
    excluded: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SectionRequest:
    """The summary of one lane."""

    isolation_scope: str | None
    branch: str
    parts: tuple[Part, ...]
    #: The rest of the lane, where the planner names it; None: as for an event appended now.
    tool_names: tuple[str, ...] | None = None
    node_path: str = ""
    #: The summary's ledger as it is answered; for the record.
    ledger: Json = None


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """Fold what stands in the span, one section per lane."""

    from_seq: int
    to_seq: int
    sections: tuple[SectionRequest, ...]
    #: Only these seqs of the span, when given.
    seqs: Ranges | None = None
    level: int = 1
    is_staged: bool = False
    #: How it came about; for the record.
    details: Json = None


@dataclass(frozen=True, slots=True)
class PinRequest:
    """Keep these events out of folds."""

    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnpinRequest:
    """Let these events be folded again."""

    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElisionRequest:
    """Read these events as stubs."""

    seqs: tuple[int, ...]
    #: So many characters of each body stay.
    keep_chars: int = 0


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """Take the effect of a marker back."""

    target_seq: int


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """Use a staged fold from now on."""

    target_seq: int


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """The session's policy changed. Compile reads no policy; kept for the record."""


MarkerRequest: TypeAlias = (
    RewindRequest
    | TimedCompactionRequest
    | FoldRequest
    | PinRequest
    | UnpinRequest
    | ElisionRequest
    | UndoRequest
    | ActivationRequest
    | PolicyRequest
)


# Markers, resolved: positions only.


@dataclass(frozen=True, slots=True)
class Section:
    """What a fold says of one lane."""

    lane: Lane
    #: Covered seqs of this lane: events that the section stands for. Never empty. A range begins
    #: and ends with an event, and may run over markers: they say nothing, and are not counted.
    covers: Ranges
    parts: tuple[Part, ...]
    #: Our token count of the parts.
    tokens: int = 0
    #: As an ADK summary gave it; our own are in role user.
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Fold:
    """A compaction: the span, and one section per lane. What no section covers is a hole."""

    from_seq: int
    to_seq: int
    sections: tuple[Section, ...]
    level: int = 1
    is_staged: bool = False
    #: Start of an ADK compaction; None for our own folds.
    start_timestamp: float | None = None
    #: Preset ``adk`` reads the summary at this time: its end, or when the last covered event was.
    end_timestamp: float | None = None


@dataclass(frozen=True, slots=True)
class Rewind:
    """Everything from this seq up to the marker is undone."""

    from_seq: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Pinned events, each with its whole call group."""

    seqs: Ranges


@dataclass(frozen=True, slots=True)
class Unpin:
    """No longer pinned."""

    seqs: Ranges


@dataclass(frozen=True, slots=True)
class Elision:
    """Events that are read as stubs."""

    seqs: Ranges
    keep_chars: int = 0


@dataclass(frozen=True, slots=True)
class Undo:
    """The marker at this seq has no effect."""

    target_seq: int


@dataclass(frozen=True, slots=True)
class Activation:
    """The staged fold at this seq is in use."""

    target_seq: int


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Changes nothing in how the log is read."""


Marker: TypeAlias = Fold | Rewind | Pin | Unpin | Elision | Undo | Activation | PolicyChange

#: What an event is: a message, or a kind of marker.
EventKind: TypeAlias = Literal[
    "message",
    "compaction",
    "rewind",
    "pin",
    "unpin",
    "elision",
    "deactivation",
    "activation",
    "policy",
]
MESSAGE: Final = "message"
KIND_BY_MARKER: Final[Mapping[type[Marker], EventKind]] = {
    Fold: "compaction",
    Rewind: "rewind",
    Pin: "pin",
    Unpin: "unpin",
    Elision: "elision",
    Undo: "deactivation",
    Activation: "activation",
    PolicyChange: "policy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMetadata:
    """The explicit cache that a reply's request was sent with, as ADK records it.

    Without a name only what would be cached: how many contents, and their fingerprint.
    """

    fingerprint: str
    contents_count: int
    cache_name: str | None = None
    #: Seconds since the epoch.
    expire_time: float | None = None
    created_at: float | None = None
    invocations_used: int | None = None

    @property
    def is_active(self) -> bool:
        """Tell whether there was a cache."""
        return None not in (self.cache_name, self.expire_time, self.invocations_used)


class Event(Struct, frozen=True, kw_only=True):
    """One entry of the log."""

    seq: int = 0
    id: str = ""
    author: str = ""
    invocation_id: str = ""
    #: Seconds since the epoch. Data: orders and ranges go by seq.
    timestamp: float = 0.0
    lane: Lane = ROOT_LANE
    #: Workflow node path, ``/``-separated.
    node_path: str = ""
    #: Role of the content as given; None without content.
    role: str | None = None
    parts: tuple[Part, ...] = ()
    #: Our token count of each part.
    part_tokens: tuple[int, ...] = ()
    #: Text of live-audio transcriptions; None when there is no such object.
    input_transcription: str | None = None
    output_transcription: str | None = None
    long_running_ids: frozenset[str] = frozenset()
    #: Call ids for which the event asks a confirmation or a credential.
    requested_ids: frozenset[str] = frozenset()
    #: ``actions.transfer_to_agent`` is set.
    is_transfer: bool = False
    is_live_session: bool = False
    skips_summarization: bool = False
    error_code: str | None = None
    #: Posted back with a reply: what `/compile` answered for it.
    compiled_seq: int | None = None
    compiled_fingerprint: str | None = None
    #: Tokens of the request that it answers, as the provider reported them with it.
    prompt_tokens: int | None = None
    cache_metadata: CacheMetadata | None = None
    #: The provider's id of the response that the event is a part of.
    response_id: str | None = None
    #: For model events.
    place: Place | None = None
    #: One for each function response, in part order; None: an orphan.
    owners: tuple[Owner | None, ...] = ()
    #: For markers, as asked for (before append) and as resolved (after).
    request: MarkerRequest | None = None
    marker: Marker | None = None
    #: Index of each part among those as appended, when a pass brought back only some of them.
    kept_parts: tuple[int, ...] | None = None
    #: What the event is to the request; the passes set it.
    segment: Segment = Segment.HISTORY
    #: What could not be taken as it came, for the caller: ``(pointer, text)``.
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> EventKind:
        """Return ``message`` for an ordinary event, else what kind of marker it is."""
        return MESSAGE if self.marker is None else KIND_BY_MARKER[type(self.marker)]

    @property
    def is_model(self) -> bool:
        """Tell whether the model produced the event; whatever calls a tool is the model's."""
        if self.role is None or self.marker is not None:
            return False
        if self.has_model_role:
            return True
        for part in self.parts:  # noqa: SIM110  a third of the time of `any`
            if isinstance(part, FunctionCall):
                return True
        return False

    @property
    def has_model_role(self) -> bool:
        """Tell whether the content says that it is the model's, or an agent's without saying so."""
        return self.role == "model" or (not self.role and self.author != USER)

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The function calls, in part order."""
        return calls(self.parts)

    @property
    def responses(self) -> tuple[FunctionResponse, ...]:
        """The function responses, in part order."""
        return responses(self.parts)


Events: TypeAlias = tuple[Event, ...]


def markers_of(events: Events) -> list[tuple[int, Marker]]:
    """Return the markers among the events, by seq."""
    return [(event.seq, event.marker) for event in events if event.marker is not None]
