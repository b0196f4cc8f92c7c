"""What a compile is asked for, and what it answers."""

from collections.abc import Mapping

from msgspec import Struct

from app.core.calibration import Calibration
from app.core.compile.breaks import Break
from app.core.compile.explicit_cache import Lifecycle
from app.core.compile.inputs import CompileOptions, CompileResult, Format
from app.core.compile.trace import EventTrace
from app.core.model_rules import ModelRule
from app.ports import CompactionStanding
from app.services.append_events import AppendResult


class CompileRequest(Struct, frozen=True, kw_only=True):
    """What to compile, from where, and what to say of it."""

    options: CompileOptions
    format: Format
    as_of_seq: int | None = None
    min_seq: int | None = None
    base_fingerprint: str | None = None
    #: Most tokens that the request may take; None: what the model takes.
    budget_tokens: int | None = None
    #: What of the model's window is left for the answer; None: the most that the model answers.
    reserve_tokens: int | None = None
    #: Digest of the inputs of an earlier compile.
    inputs: str | None = None
    wants_explain: bool = False
    #: It will be sent: what it is expected to take is remembered for its report.
    is_sent: bool = True


class Tokens(Struct, frozen=True, kw_only=True):
    """What the request will take."""

    by_segment: Mapping[str, int]
    method: str
    #: By how much the total may be off.
    error_bound: int

    @property
    def total(self) -> int:
        """All segments together."""
        return sum(self.by_segment.values())


class Compiled(Struct, frozen=True, kw_only=True):
    """The answer of a compile."""

    result: CompileResult
    #: The provider's body fields as JSON text; with a base that holds, only what follows it.
    request: Mapping[str, str]
    head_seq: int
    compiled_seq: int
    #: Parts of the base that need not be sent again; 0 without one that holds.
    base_count: int
    #: What follows the base goes on with the base's last turn.
    continues_turn: bool
    tokens: Tokens
    #: What the request was allowed to take; None: no limit.
    budget_tokens: int | None
    #: What requests of the model may take, whatever this one was allowed; None: nobody knows.
    window_tokens: int | None
    #: As it was named; empty: none was.
    model: str
    inputs_digest: str
    found_break: Break | None
    #: Of what the provider should have cached already, in the model's tokens.
    shared_prefix_tokens: int
    rule: ModelRule | None
    calibration: Calibration
    timing_ms: Mapping[str, float]
    explained: tuple[EventTrace, ...] | None = None
    appended: AppendResult | None = None
    #: As it was read with the log; None: it was not.
    compaction: CompactionStanding | None = None
    #: What to do about the explicit cache; None: none was asked for.
    lifecycle: Lifecycle | None = None
    #: Body of the request that makes it; None when none is to be made.
    cache_segment: Mapping[str, str] | None = None

    @property
    def uncut_tokens(self) -> int:
        """What the request would have taken, had nothing been cut for the budget."""
        return self.tokens.total + sum(action.tokens for action in self.result.budget_actions)
