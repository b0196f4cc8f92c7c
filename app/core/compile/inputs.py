"""What a compile takes and gives: CompileOptions, CompileInput, CompileResult, and the Format
protocol.

Compile is a function of (log up to a seq, options, inputs). Everything that is fetched from outside
arrives in :class:`CompileInput`; a pass never asks.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from app.core.calibration import UNCALIBRATED, Calibration
from app.core.canonical import Json
from app.core.compile.estimate import estimate_tokens
from app.core.compile.media import LimitedMedia, MediaKind
from app.core.compile.order import ReadKey
from app.core.contents import Content, Contents, Opaque, Part, PlacedPart, Role
from app.core.events import Event
from app.core.index import Index
from app.core.lanes import ANYONE, Reader
from app.core.model_rules import ModelRule, Ttl
from app.core.tokens import CountTokens

Preset: TypeAlias = Literal["stable", "adk"]
IncludeContents: TypeAlias = Literal["default", "none"]
Thinking: TypeAlias = Literal["auto", "keep", "strip"]
Narration: TypeAlias = Literal["quoted", "name", "none"]
Ids: TypeAlias = Literal["auto", "keep", "strip"]
UnansweredCalls: TypeAlias = Literal["auto", "close", "drop"]
Breakpoints: TypeAlias = Literal["auto", "none"]


class Instruction(Struct, frozen=True, kw_only=True):
    """The agent's instructions (``spec/ADK.md`` B.12)."""

    #: Sent verbatim in the system text: the part of the instructions that never changes.
    static: str = ""
    #: Media of the static instruction, referenced from the system text.
    static_parts: tuple[Part, ...] = ()
    #: State is injected. In the system text when there is no static instruction, else ephemeral.
    dynamic: str = ""
    #: The root agent's, for all agents. State is injected.
    global_: str = ""
    description: str = ""


class ExplicitCache(Struct, frozen=True, kw_only=True):
    """How explicit caches are to be kept (``spec/ADK.md`` D); None: as the model's rule says."""

    ttl_s: int | None = None
    #: So many invocations may use one cache.
    cache_intervals: int | None = None
    #: After a request of fewer tokens none is worth it.
    min_tokens: int = 0


class CacheOptions(Struct, frozen=True, kw_only=True):
    """What the caller wants of the provider's cache."""

    breakpoints: Breakpoints = "auto"
    ttl: Ttl = "5m"
    #: None: no explicit caches.
    explicit: ExplicitCache | None = None


#: An agent that is told nothing.
NO_INSTRUCTION: Final = Instruction()


class CompileOptions(Struct, frozen=True, kw_only=True):
    """What the caller chose. Hashable: equal options are equal keys."""

    reader: Reader = ANYONE
    preset: Preset = "stable"
    include_contents: IncludeContents = "default"
    thinking: Thinking = "auto"
    narration: Narration = "quoted"
    ids: Ids = "auto"
    #: Under ``adk``: dropped, as ADK does (``auto``), or closed by a synthetic result. Under
    #: ``stable`` they are always closed.
    unanswered_calls: UnansweredCalls = "auto"
    foreign_thoughts: bool = False
    single_turn: bool = False
    #: The current invocation's user content, for a scope whose opening call is not in the log.
    user_content: tuple[Part, ...] = ()
    #: Folds to read as if they were undone, by seq.
    expand: tuple[int, ...] = ()
    #: A user text where the provider refuses the model's turn last, or two in a row.
    tail_nudge: bool = True
    instruction: Instruction = NO_INSTRUCTION
    #: System text of the caller's own, before the instructions.
    system: str = ""
    #: Canonical JSON of each tool, in the caller's order.
    tools: tuple[str, ...] = ()
    model: str = ""
    cache: CacheOptions = CacheOptions()
    #: Unsigned calls get the documented sentinel where the model wants a signature.
    call_signature_sentinel: bool = True


class CompileInput(Struct, frozen=True, kw_only=True):
    """Everything that the passes may know besides the events."""

    options: CompileOptions
    format: "Format"
    index: Index
    #: The log was read up to here; 0 for an empty one.
    compiled_seq: int
    #: Session, ``app:`` and ``user:`` state in one view, for state injection.
    state: Mapping[str, Json] = field(default_factory=dict)
    #: Canonical JSON of the arguments of the call that opened the reader's isolation scope.
    opening_args: str | None = None
    #: What the whole request may take; None: no limit.
    budget_tokens: int | None = None
    #: Our count of the system text and of the tools.
    system_tokens: int = 0
    tools_tokens: int = 0
    #: What is known of the model; None: nothing.
    rule: ModelRule | None = None
    calibration: Calibration = UNCALIBRATED
    #: For what others wrote and no append counted: the tokenizer; roughly, for who has none.
    count: CountTokens = estimate_tokens
    #: Tenant and session, for the key of the provider's cache.
    cache_scope: tuple[str, str] = ("", "")
    #: What an earlier compile made of the events that are not given.
    settled: "Settled" = field(default_factory=lambda: NOTHING_SETTLED)

    @property
    def fixed_tokens(self) -> int:
        """What the request takes before any contents."""
        return self.system_tokens + self.tools_tokens


class Repair(Struct, frozen=True):
    """Something in the log that the provider would refuse, and what was done."""

    rule: str
    seq: int | None
    detail: str


class PendingCall(Struct, frozen=True):
    """A call without a result that a result may still answer."""

    call_id: str | None
    name: str
    seq: int


class BudgetAction(Struct, frozen=True):
    """One cut that was made to fit the budget."""

    action: Literal["staged_fold", "stubbed", "dropped"]
    #: The event that was cut; of dropped invocations the newest event.
    seq: int | None
    #: Tokens saved.
    tokens: int


class Breakpoint(Struct, frozen=True):
    """A place up to which the provider is asked to cache."""

    #: ``tools``, ``system``, or the index of the content that it ends in.
    block: str | int
    #: Our count of everything up to it.
    tokens: int
    ttl: Ttl


class ReasoningCounts(Struct):
    """What became of thinking, in items."""

    kept: int = 0
    stripped: int = 0
    #: No longer stand on the prefix that produced them, kept or not.
    invalidated: int = 0


#: ``(seq of the call's event, index of the call among its parts as appended)``
CallKey: TypeAlias = tuple[int, int]


class Thoughts(Struct, frozen=True):
    """What became of the thinking of one event, in items."""

    seq: int
    kept: int = 0
    stripped: int = 0
    invalidated: int = 0


class Report:
    """What the passes have to say beside their output. One per compile, only ever added to."""

    def __init__(self) -> None:
        self.repairs: list[Repair] = []
        self.pending: list[PendingCall] = []
        self.warnings: list[str] = []
        self.budget_actions: list[BudgetAction] = []
        self.breakpoints: list[Breakpoint] = []
        #: Breakpoints among what is settled.
        self.settled_marks: list[tuple[MarkerPlace, Ttl]] = []
        self.thoughts: list[Thoughts] = []
        #: Calls that are shown, answered right after their response.
        self.calls: list[CallKey] = []
        #: At most so many tokens are what the budget was held against.
        self.budgeted_tokens = 0

    def repair(self, rule: str, seq: int | None, detail: str) -> None:
        """Report a repair."""
        self.repairs.append(Repair(rule, seq, detail))


class RenderedPart(Struct, frozen=True):
    """A part as the provider reads it."""

    placed: PlacedPart
    #: Canonical JSON of the part in the provider's shape, without cache markers.
    text: str


class RenderedContent(Struct, frozen=True):
    """A turn whose parts are rendered."""

    content: Content
    parts: tuple[RenderedPart, ...]

    @property
    def role(self) -> Role:
        """Our role; the format gives it the provider's name."""
        return self.content.role


class HeadMarks(Struct, frozen=True, kw_only=True):
    """What of the cache is said outside of the contents."""

    #: How long what ends with the tools, or with the system text, is to be cached.
    tools: Ttl | None = None
    system: Ttl | None = None
    #: Requests with one key are sent to one cache; empty: none.
    key: str = ""
    #: This is the rest of a request whose tools the caller has.
    has_sent_tools: bool = False
    #: The explicit cache that this is the rest of; empty: none.
    cached_content: str = ""


NO_MARKS: Final = HeadMarks()


class Format(Protocol):
    """A provider's wire format, as the pipeline needs it. Stateless; one value per format.

    The four flags are the provider's turn rules (``spec/PROVIDERS.md``); ``merge_turns`` keeps
    them.
    """

    @property
    def name(self) -> str:
        """``gemini``, ``openai_chat``, ``openai_responses``, ``anthropic``, ``bedrock`` or
        ``native``."""

    def __hash__(self) -> int:
        """A format may be a part of a key."""

    @property
    def history_field(self) -> str:
        """The body field that lists the contents: an array, whose end is rendered from the last
        contents alone."""

    @property
    def merges_turns(self) -> bool:
        """Neighbouring contents of one role become one."""

    @property
    def needs_alternation(self) -> bool:
        """Two model contents in a row are refused: the first and the last must be the user's."""

    @property
    def refuses_blank_text(self) -> bool:
        """Empty or white-space text is refused."""

    @property
    def refuses_thought_last(self) -> bool:
        """A model's turn may not end in a thought."""

    @property
    def needs_ids(self) -> bool:
        """Every call must carry an id."""

    @property
    def limited_media(self) -> LimitedMedia | None:
        """What the provider takes only so much of; None: no such limit is kept."""

    def emit_id(self, call_id: str) -> str:
        """Map a call id into the provider's charset and length, deterministically."""

    def says(self, part: Part, role: Role) -> bool:
        """Tell whether the format has a place for this part; if not, it is left out and
        reported."""

    def keeps(self, part: Opaque, role: Role) -> bool:
        """Tell whether a block of this provider's is sent as it is; if it is told in words, that is
        reported. Of other providers' blocks words are all there is to send."""

    def render_part(self, part: Part, role: Role) -> str:
        """Return the canonical JSON of a part; only for parts that it says."""

    def render_tools(self, tools: Sequence[str]) -> str:
        """Return the canonical JSON of the request's tools field; the tools come as ours."""

    def takes_marker(self, part: Part, role: Role) -> bool:
        """Tell whether a cache marker may stand behind this part."""

    def with_marker(self, text: str, ttl: str) -> str:
        """Return a rendered part with a cache marker; only for parts that take one."""

    def render_request(
        self,
        contents: Sequence[RenderedContent],
        *,
        system: str,
        tools: str,
        model: str,
        marks: HeadMarks = NO_MARKS,
    ) -> Mapping[str, str]:
        """Return the provider's body fields, each as JSON text; absent ones are left out."""


class MarkerPlace(Struct, frozen=True):
    """A part that a cache marker may stand behind."""

    #: Index of the content, and of the part in it.
    content: int
    part: int
    #: Our tokens and the chained parts up to it, both included.
    tokens: int
    blocks: int
    is_summary: bool = False


class SettledItems(Struct, frozen=True):
    """Neighbouring contents as the provider reads them."""

    #: Items of the history's array with commas between, without a cache marker.
    text: str
    #: Where a cache marker may come to stand, and the content, to be rendered with it.
    places: tuple[MarkerPlace, ...] = ()
    content: RenderedContent | None = None


class Settled(Struct, frozen=True, kw_only=True):
    """What an earlier compile made of everything that is read before a reply.

        [sum: 1-40] [u41] [m42] [u43] | [m44] [u45: result] ...      settled | given

    A reply closes every call before it, and nothing that lands later is read before it. So as long
    as index and options stay, what came of those events is what would come of them again (the
    prefix law), and a compile may go on from there. Here is what the passes need to know of events
    that they are not given.
    """

    #: Where the given events begin; None: nothing is settled.
    until: ReadKey | None = None
    #: The head when it was made: what landed later and is read before ``until`` breaks it.
    head_seq: int = 0
    #: All contents before the reply, and the last of them.
    content_count: int = 0
    last_content: Content | None = None
    #: As in the result, up to the reply.
    chain: tuple[str, ...] = ()
    system: str = ""
    tools: str = ""
    opening_args: str | None = None
    items: tuple[SettledItems, ...] = ()
    #: Fields beside the history that the contents call for.
    fields: Mapping[str, str] = field(default_factory=dict)
    repairs: tuple[Repair, ...] = ()
    thoughts: tuple[Thoughts, ...] = ()
    calls: frozenset[CallKey] = frozenset()
    emitted_ids: frozenset[str] = frozenset()
    #: Media of which the provider takes only so many, by kind.
    media_counts: Mapping[MediaKind, int] = field(default_factory=dict)
    #: The newest marker that made one of the parts what it is.
    newest_edit: int = 0
    #: Our tokens: of each segment, up to after so many chained parts (head included), of the
    #: chained parts as placed, and at most of what the budget is held against.
    by_segment: Mapping[str, int] = field(default_factory=dict)
    up_to: tuple[int, ...] = ()
    placed_tokens: int = 0
    budgeted_tokens: int = 0
    #: The newest summary and the last part that a cache marker may stand behind.
    summary_place: MarkerPlace | None = None
    last_place: MarkerPlace | None = None
    #: The newest reply that says what it was compiled for, and the chained parts before it.
    reply: Event | None = None
    reply_at: int = 0
    #: The newest reply with a provider's report that stands, and the chained parts it tells of.
    report: Event | None = None
    report_at: int = 0

    @property
    def part_count(self) -> int:
        """The chained parts before the reply."""
        return max(0, len(self.chain) - 1)


NOTHING_SETTLED: "Final[Settled]" = Settled()


class CompileResult(Struct, frozen=True, kw_only=True):
    """Everything that one compile gives."""

    #: The contents, after what is settled.
    contents: Contents
    rendered: tuple[RenderedContent, ...]
    #: The system text, all pieces joined.
    system: str
    tools: str
    #: ``chain[i]`` is the hash after ``i`` chained parts; ``chain[0]`` covers tools and system.
    chain: tuple[str, ...]
    fingerprint: str
    prefix_fingerprint: str
    sent_fingerprint: str
    prefix_count: int
    repairs: tuple[Repair, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    warnings: tuple[str, ...] = ()
    budget_actions: tuple[BudgetAction, ...] = ()
    breakpoints: tuple[Breakpoint, ...] = ()
    reasoning: ReasoningCounts = field(default_factory=ReasoningCounts)
    #: Requests with one key are sent to one cache; empty: none.
    cache_key: str = ""
    #: What the compile went on from, and the breakpoints in it.
    settled: Settled = NOTHING_SETTLED
    settled_marks: tuple[tuple[MarkerPlace, Ttl], ...] = ()
    #: For whoever goes on from here (:mod:`app.core.compile.settle`).
    thoughts: tuple[Thoughts, ...] = ()
    calls: tuple[CallKey, ...] = ()
    budgeted_tokens: int = 0
