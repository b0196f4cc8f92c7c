"""Compile on the wire. The answer is joined from texts that are JSON already."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from app.api.schemas.events import Appended, append_answer, warning_answer
from app.api.schemas.fields import (
    AnswerModel,
    BranchPath,
    FieldRuleError,
    JsonObject,
    Position,
    RequestModel,
    ScopeName,
    Seq,
    WaitMs,
    Word,
    only_one_of,
)
from app.core.canonical import Json, canonical_json, clean_text, json_string
from app.core.compile.explicit_cache import Lifecycle
from app.core.compile.inputs import (
    CacheOptions,
    CompileOptions,
    CompileResult,
    ExplicitCache,
    Instruction,
)
from app.core.compile.pipeline import PIPELINE_VERSION
from app.core.compile.render import has_ephemeral
from app.core.compile.trace import EventTrace
from app.core.contents import FileData, InlineData, Part, Text
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.lanes import Reader
from app.formats import FORMATS
from app.formats.adk import parse_content, parse_part
from app.formats.tool_names import check_tool_names
from app.formats.violations import Violation
from app.services.compare_compiles import Comparison
from app.services.compiled import Compiled, CompileRequest
from app.services.prepare_events import Note
from app.services.schedule_compaction import Scheduled

FormatName = Literal["gemini", "openai_chat", "openai_responses", "anthropic", "bedrock", "native"]
#: A content: a string, or an object with role and parts.
ContentField = str | JsonObject
MAX_EXPANDED = 1000
#: As google-adk bounds it; a cache that lives longer than a year is a mistake.
MAX_CACHE_INTERVALS = 100
MAX_CACHE_TTL_S = 31_536_000


class InstructionField(RequestModel):
    """The agent's instructions; state is injected into `dynamic` and `global`."""

    static: ContentField = ""
    """Sent verbatim: the part that never changes; a text, or a content with media."""
    dynamic: str = ""
    """State is injected; ephemeral where there is a static part."""
    global_: str = Field(default="", alias="global")
    """The root agent's, for all agents; state is injected."""
    description: str = ""
    """What the agent says of itself."""

    def to_domain(self, pointer: str) -> Instruction:
        """Return the instruction."""
        is_text = isinstance(self.static, str)
        return Instruction(
            static=clean_text(str(self.static)) if is_text else "",
            static_parts=() if is_text else _said_parts(self.static, f"{pointer}/static"),
            dynamic=clean_text(self.dynamic),
            global_=clean_text(self.global_),
            description=clean_text(self.description),
        )


class BudgetField(RequestModel):
    """What the request may take, and what of it is kept for the answer."""

    max_input_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of the request, by the model's count; null: the model's window."""
    reserve_output_tokens: Annotated[int, Field(ge=0)] | None = None
    """Of these, what is left for the answer; null: nothing of what is given, of a window what the
    model may answer."""

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.max_input_tokens is not None and self._reserve >= self.max_input_tokens:
            raise FieldRuleError("leaves nothing of max_input_tokens", "reserve_output_tokens")
        return self

    @property
    def _reserve(self) -> int:
        return self.reserve_output_tokens or 0

    @property
    def limit(self) -> int | None:
        """Tokens of the whole request; None: the model's."""
        return None if self.max_input_tokens is None else self.max_input_tokens - self._reserve


class ExplicitCacheField(RequestModel):
    """How an explicit cache is to be kept; what is left out is as the model's rule says."""

    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_CACHE_TTL_S)] | None = None
    """How long a cache lives; null: as the model's rule says."""
    cache_intervals: Annotated[int, Field(ge=1, le=MAX_CACHE_INTERVALS)] | None = None
    """How many invocations one cache serves; null: as the model's rule says."""
    min_tokens: Annotated[int, Field(ge=0)] = 0
    """After a request of fewer tokens none is worth it."""

    def to_domain(self) -> ExplicitCache:
        """Return the terms."""
        return ExplicitCache(
            ttl_s=self.ttl_seconds,
            cache_intervals=self.cache_intervals,
            min_tokens=self.min_tokens,
        )


class CacheField(RequestModel):
    """What the caller wants of the provider's cache."""

    breakpoints: Literal["auto", "none"] = "auto"
    """`none` puts no cache markers."""
    ttl: Literal["5m", "1h"] = "5m"
    """How long the provider is to keep what is marked, where it lets one choose."""
    explicit: ExplicitCacheField | None = None
    """Terms of explicit caches, of format `gemini` alone; null: none."""

    def to_domain(self) -> CacheOptions:
        """Return the options."""
        return CacheOptions(
            breakpoints=self.breakpoints,
            ttl=self.ttl,
            explicit=None if self.explicit is None else self.explicit.to_domain(),
        )


class CompileFields(RequestModel):
    """What decides the output of a compile."""

    agent: Word | None = None
    """Name of the reader; null: nothing is foreign."""
    branch: BranchPath = ""
    """Of the reader: dotted agent path; it sees its own line upward, and from the root, which is
    the empty path, all of its scope."""
    isolation_scope: ScopeName | None = None
    """Of the reader; null: outside of any scope."""
    node_path: BranchPath = ""
    """Of a graph's node, whose own inputs the reader sees."""
    format: FormatName = "gemini"
    """Of the answered `request`."""
    model: Word | None = None
    """Its name, in the spelling of any provider; decides budget, cache and how tokens count."""
    preset: Literal["stable", "adk"] = "stable"
    """`stable` is valid for the provider; `adk` is as google-adk does it."""
    include_contents: Literal["default", "none"] = "default"
    """`none` shows nothing from before the current turn."""
    thinking: Literal["auto", "keep", "strip"] = "auto"
    """`auto` keeps what still stands on its prefix, `keep` all, `strip` none."""
    narration: Literal["quoted", "name", "none"] = "quoted"
    """How other agents' events are retold: between markers, with their name, or not at all."""
    ids: Literal["auto", "keep", "strip"] = "auto"
    """Call ids: as the format needs, always, or never."""
    unanswered_calls: Literal["auto", "close", "drop"] = "auto"
    """`drop` goes with preset `adk`; `stable` closes them."""
    foreign_thoughts: bool = False
    """Whether other agents' thoughts are retold."""
    single_turn: bool = False
    """Whether the reader sees only events of its own node."""
    user_content: ContentField | None = None
    """Of the current invocation, for a scope whose opening call is not in the log."""
    instruction: InstructionField | None = None
    """The agent's instructions."""
    system: str = ""
    """System text of the caller's own, before the instructions."""
    tools: list[JsonObject] = Field(default_factory=list)
    """`name`, `description`, `parameters` as JSON Schema of an object; or the provider's own
    shape."""
    as_of_seq: Position | None = None
    """Compile the log as it was at this seq; null: at the head."""
    expand: Annotated[list[Seq], Field(max_length=MAX_EXPANDED)] = Field(default_factory=list)
    """Folds to read as if they were undone, by seq."""
    budget: BudgetField | None = None
    """What the request may take; null: the model's window less a reserve. Of a model that no rule
    knows that is any size, and `warnings` says `unknown_window`."""
    cache: CacheField | None = None
    """What is wanted of the provider's cache; null: the defaults."""

    @model_validator(mode="after")
    def _drops_calls_only_under_adk(self) -> Self:
        if self.unanswered_calls == "drop" and self.preset != "adk":
            detail = "drop goes with preset adk: stable closes them"
            raise FieldRuleError(detail, "unanswered_calls")
        return self

    def to_request(self, pointer: str = "") -> CompileRequest:
        """Return the request.

        Args:
            pointer: where these fields stand in the body.
        """
        options = self._options(pointer)
        if self.preset == "stable":
            check_tool_names(self.format, options.tools, pointer=f"{pointer}/tools")
        return CompileRequest(
            options=options,
            format=FORMATS[self.format],
            as_of_seq=self.as_of_seq,
            budget_tokens=None if self.budget is None else self.budget.limit,
            reserve_tokens=None if self.budget is None else self.budget.reserve_output_tokens,
        )

    def _cache(self, pointer: str) -> CacheOptions:
        cache = CacheOptions() if self.cache is None else self.cache.to_domain()
        if cache.explicit is None:
            return cache
        if self.format != "gemini":
            raise InvalidInputError(
                "only format gemini has explicit caches", pointer=f"{pointer}/cache/explicit"
            )
        if not self.model:
            raise InvalidInputError("an explicit cache is of a model", pointer=f"{pointer}/model")
        return cache

    def _options(self, pointer: str) -> CompileOptions:
        user_content = self.user_content
        instruction = self.instruction or InstructionField()
        return CompileOptions(
            reader=Reader(
                agent=self.agent or "",
                branch=self.branch,
                isolation_scope=self.isolation_scope,
                node_path=self.node_path,
            ),
            preset=self.preset,
            include_contents=self.include_contents,
            thinking=self.thinking,
            narration=self.narration,
            ids=self.ids,
            unanswered_calls=self.unanswered_calls,
            foreign_thoughts=self.foreign_thoughts,
            single_turn=self.single_turn,
            user_content=()
            if user_content is None
            else _said_parts(user_content, f"{pointer}/user_content"),
            expand=tuple(self.expand),
            instruction=instruction.to_domain(f"{pointer}/instruction"),
            system=clean_text(self.system),
            tools=tuple(canonical_json(tool) for tool in self.tools),
            model=self.model or "",
            cache=self._cache(pointer),
        )


FieldsT = TypeVar("FieldsT", bound=CompileFields)


class StatelessCompileBody(CompileFields):
    """A compile of events that are stored nowhere."""

    events: list[Any]
    """The whole log: events in ADK's shape, as for an append."""
    base_fingerprint: Word | None = None
    """Of a request that the caller holds: only what follows it is answered."""
    explain: bool = False
    """Say what became of every event."""

    @model_validator(mode="after")
    def _splits_once(self) -> Self:
        return _split_once(self, self.base_fingerprint)

    def to_request(self, pointer: str = "") -> CompileRequest:
        """Return the request."""
        return replace(
            super().to_request(pointer),
            base_fingerprint=self.base_fingerprint,
            wants_explain=self.explain,
        )


class CompileBody(CompileFields):
    """A compile of a stored session, perhaps after an append."""

    append: list[Any] = Field(default_factory=list)
    """Events to append first, in the same round trip."""
    base_fingerprint: Word | None = None
    """Of a request that the caller holds: only what follows it is answered."""
    min_seq: Position | None = None
    """Wait until the log has come so far, else 409."""
    inputs: Word | None = None
    """Digest of an earlier compile: use what that was given."""
    explain: bool = False
    """Say what became of every event."""
    compaction_wait_ms: WaitMs = 0
    """How long a fold that is due may hold up the answer, in milliseconds."""

    @model_validator(mode="after")
    def _splits_once(self) -> Self:
        return _split_once(self, self.base_fingerprint)

    @model_validator(mode="after")
    def _appends_at_the_head(self) -> Self:
        if self.append and self.as_of_seq is not None:
            detail = "goes with no append: what is appended comes after it"
            raise FieldRuleError(detail, "as_of_seq")
        return self

    def to_request(self, pointer: str = "") -> CompileRequest:
        """Return the request."""
        return replace(
            super().to_request(pointer),
            min_seq=self.min_seq,
            base_fingerprint=self.base_fingerprint,
            inputs=self.inputs,
            wants_explain=self.explain,
        )


def _split_once(fields: FieldsT, base_fingerprint: str | None) -> FieldsT:
    if base_fingerprint is not None and fields.cache is not None and fields.cache.explicit:
        detail = "goes with no cache.explicit: either splits the request"
        raise FieldRuleError(detail, "base_fingerprint")
    return fields


class DiffBody(RequestModel):
    """Two compiles of one session."""

    a: CompileFields
    """Options of the first."""
    b: CompileFields
    """Options of the second."""


def _said_parts(content: ContentField, pointer: str) -> tuple[Part, ...]:
    """Return the parts of a content that is no turn of the log: texts and media.

    Raises:
        InvalidInputError: a part is something else, which would stand there without its turn.
    """
    if isinstance(content, str):
        return (Text(text=clean_text(content)),)
    said = parse_content(content, pointer, []).parts
    for number, item in enumerate(content.get("parts") or ()):
        for part in parse_part(item):
            if part.thought or not isinstance(part, Text | InlineData | FileData):
                detail = "holds texts and media alone: no calls, results, thoughts or code"
                raise InvalidInputError(detail, pointer=f"{pointer}/parts/{number}")
    return said


# Answers


class TokensAnswer(AnswerModel):
    """What the request will take."""

    total: int
    """What the provider is expected to count: its last report of a request that still stands, and
    our calibrated count of what follows; without a report all is our count."""
    by_segment: dict[str, int]
    """The total, shared out by what each segment takes."""
    method: str
    """Encoding of the tokenizer that counts, as in `o200k_base`; `o200k_base_calibrated` where its
    count is scaled to the model's, `reported+o200k_base` where it goes on from a provider's report
    of what the request begins with."""
    error_bound: int
    """By how many tokens the total may be off, either way, as far as can be told: what is our count
    is as uncertain as the model's rule assumes, or as reports of it have differed. What the
    provider reported adds nothing."""


class PendingAnswer(AnswerModel):
    """A call that a result may still answer."""

    call_id: str | None
    """As the model gave it; null when it gave none."""
    name: str
    """Of the tool."""
    seq: int
    """Of the call's event."""


class BudgetActionAnswer(AnswerModel):
    """One cut that was made to fit."""

    action: str
    """`staged_fold`, `stubbed` or `dropped`."""
    seq: int | None
    """The event; of dropped invocations the newest; null: not one event's."""
    tokens: int
    """What was saved, by our count."""


class BudgetAnswer(AnswerModel):
    """The limit, what is used of it, and what was cut for it."""

    limit: int | None
    """Tokens that the request may take; null: no limit is known."""
    used: int
    """What it takes of that."""
    actions: list[BudgetActionAnswer]
    """Cuts, in the order in which they were made."""


class RepairAnswer(AnswerModel):
    """What the provider would refuse, and what was done."""

    rule: str
    """Which, as a word."""
    seq: int | None
    """The event; null: not one event's."""
    detail: str
    """What was done, in words."""


class BreakpointAnswer(AnswerModel):
    """A place up to which the provider is asked to cache."""

    block: str | int
    """`tools`, `system`, or index of the content that it ends in."""
    tokens: int
    """Our count of everything up to it."""
    ttl: str
    """How long the provider is to keep it."""


class LifecycleAnswer(AnswerModel):
    """What to do about the explicit cache, and what the reply's `cache_metadata` is to say."""

    action: Literal["none", "create", "use", "replace", "delete"]
    """What to do before the request is sent."""
    reason: str
    """Why, as a word."""
    name: str | None
    """The cache to use or, of `replace` and `delete`, the one to delete."""
    contents_count: int
    """Contents from the start that the cache holds, or would."""
    fingerprint: str
    """Of these, with tools and system text."""
    invocations_used: int | None
    """Invocations that the cache has served with this one; null: there is none."""
    expire_time: float | None
    """When the cache ends, in seconds since 1970; null: there is none."""


class CacheAnswer(AnswerModel):
    """What the provider's cache is asked for, what it has, and why it will miss if it will."""

    breakpoints: list[BreakpointAnswer]
    """Where the provider is asked to cache, in order."""
    shared_prefix_tokens: int
    """What still stands of the request before, by the model's count."""
    break_reason: str | None
    """Why not all of it does; null: all does. Of a past position it is told only until another
    reply of the reader's follows."""
    break_seq: int | None
    """The marker that is why, by seq."""
    prompt_cache_key: str | None
    """Sent along where the provider takes one."""
    lifecycle: LifecycleAnswer | None
    """Of the explicit cache; null: none was asked for."""


class ReasoningAnswer(AnswerModel):
    """What became of thinking, in items."""

    kept: int
    """Sent."""
    stripped: int
    """Left out."""
    invalidated: int
    """Of both, what no longer stands on the prefix that produced it."""


class InputsAnswer(AnswerModel):
    """What was fetched beside the log."""

    digest: str
    """Names what was used; as `inputs` it compiles with the same again."""


class ExplainedEvent(AnswerModel):
    """What became of an event, or of a span of masked, rewound or hidden ones."""

    seq: int | None = None
    """Of a single event."""
    from_seq: int | None = None
    """Of a span."""
    to_seq: int | None = None
    """Its end."""
    id: str | None = None
    """Of a single event."""
    action: str
    """`kept`, `masked`, `rewound`, `hidden`, `merged`, `narrated`, `stubbed`, `dropped`, `repaired`
    or `marker`."""
    pass_: str | None = Field(alias="pass")
    """The pass that took it away or changed it; null: none did."""
    by_seq: int | None
    """The marker that is the reason."""
    block: int | None
    """Index of the content that holds it."""
    tokens: int
    """Our count of it."""


class CompactionDue(AnswerModel):
    """Whether a fold is due, and the job that sees to it or has seen to it."""

    due: bool
    """Whether a fold is due."""
    reason: str | None
    """What made it due or, where nothing was folded, why."""
    job_id: str | None
    """To ask for at `/v1/jobs/{id}`; null: none."""


class CompileAnswer(AnswerModel):
    """A request for the provider, and what there is to say of it."""

    request: dict[str, Any]
    """The provider's own body, ready to send but for the model."""
    cache_segment: dict[str, Any] | None = None
    """Body of the request that makes the explicit cache, but for the model; only where one is made.
    """
    head_seq: int
    """The last seq of the log."""
    compiled_seq: int
    """Up to where the log was read; to be posted back with the reply."""
    fingerprint: str
    """Hash of all parts that stay, chained; to be posted back with the reply."""
    prefix_fingerprint: str
    """The same up to the end of the cacheable prefix."""
    sent_fingerprint: str
    """The same with ephemeral texts hashed last."""
    prefix_count: int
    """Parts of the cacheable prefix."""
    base_count: int
    """Parts that the caller's base has; 0: the request is whole."""
    continues_turn: bool
    """What follows the base goes on with its last turn: the first turn's parts belong there."""
    pending: list[PendingAnswer]
    """Calls without a result that a result may still answer."""
    cache: CacheAnswer
    """What there is to say of the provider's cache."""
    tokens: TokensAnswer
    """What the request will take, in all and by segment."""
    budget: BudgetAnswer
    """What it may take, and what was cut for it."""
    reasoning: ReasoningAnswer
    """What became of the thinking, in items."""
    repairs: list[RepairAnswer]
    """What the provider would have refused."""
    warnings: list[str | dict[str, str]]
    """What could not be taken as it came."""
    inputs: InputsAnswer
    """Names what was fetched beside the log."""
    compaction: CompactionDue | None = None
    """Whether a fold is due."""
    pipeline_version: str
    """Changes when passes give something else."""
    timing_ms: dict[str, float]
    """By step and pass."""
    events: list[ExplainedEvent] | None = None
    """What became of each, with `explain`."""
    appended: list[Appended] | None = None
    """What was appended first, with `append`."""


def compile_text(
    compiled: Compiled, notes: list[Note] | None = None, compaction: Scheduled | None = None
) -> str:
    """Return the answer as JSON text; what the provider gets is not decoded on the way."""
    # Joined once: the request is large.
    pieces = ['{"request":', *_object_pieces(compiled.request)]
    if compiled.cache_segment is not None:
        pieces += [',"cache_segment":', *_object_pieces(compiled.cache_segment)]
    beside = _beside_request(compiled, notes or [])
    if compaction is not None:
        beside["compaction"] = {
            "due": compaction.is_due,
            "reason": compaction.reason,
            "job_id": compaction.job_id,
        }
    return "".join([*pieces, ",", canonical_json(beside)[1:]])


def _object_pieces(texts: Mapping[str, str]) -> list[str]:
    """Return the pieces of an object whose values are JSON texts already."""
    pieces: list[str] = []
    for key, text in texts.items():
        pieces += [",", json_string(key), ":", text]
    return ["{", *pieces[1:], "}"]


def _beside_request(compiled: Compiled, notes: list[Note]) -> dict[str, Json]:
    result = compiled.result
    appended = append_answer(compiled.appended) if compiled.appended is not None else {}
    warnings: list[Json] = [*result.warnings, *map(_warning, notes)]
    warnings += appended.get("warnings", [])
    has_markers = any(isinstance(each.block, int) for each in result.breakpoints)
    if compiled.base_count and compiled.request and has_markers:
        # What the caller holds has markers of its own, and providers take few.
        warnings.append("markers_move")
    if compiled.base_count and has_ephemeral(result):
        # What the caller holds ends with such a text as well, which is no part of the base.
        warnings.append("ephemeral_moves")
    if compiled.model and compiled.window_tokens is None:
        warnings.append("unknown_window")
    answer: dict[str, Json] = {
        "head_seq": compiled.head_seq,
        "compiled_seq": compiled.compiled_seq,
        "fingerprint": result.fingerprint,
        "prefix_fingerprint": result.prefix_fingerprint,
        "sent_fingerprint": result.sent_fingerprint,
        "prefix_count": result.prefix_count,
        "base_count": compiled.base_count,
        "continues_turn": compiled.continues_turn,
        "pending": _pending(result),
        "cache": _cache(compiled),
        "tokens": {
            "total": compiled.tokens.total,
            "by_segment": dict(compiled.tokens.by_segment),
            "method": compiled.tokens.method,
            "error_bound": compiled.tokens.error_bound,
        },
        "budget": {
            "limit": compiled.budget_tokens,
            "used": compiled.tokens.total,
            "actions": [
                {"action": each.action, "seq": each.seq, "tokens": each.tokens}
                for each in result.budget_actions
            ],
        },
        "reasoning": {
            "kept": result.reasoning.kept,
            "stripped": result.reasoning.stripped,
            "invalidated": result.reasoning.invalidated,
        },
        "repairs": [
            {"rule": repair.rule, "seq": repair.seq, "detail": repair.detail}
            for repair in result.repairs
        ],
        "warnings": warnings,
        "inputs": {"digest": compiled.inputs_digest},
        "pipeline_version": PIPELINE_VERSION,
        "timing_ms": dict(compiled.timing_ms),
    }
    if compiled.explained is not None:
        answer["events"] = [_explained(row) for row in compiled.explained]
    if appended:
        answer["appended"] = appended["appended"]
    return answer


def _warning(note: Note) -> Json:
    return {**warning_answer(note)}


def _pending(result: CompileResult) -> Json:
    return [
        {"call_id": call.call_id, "name": call.name, "seq": call.seq} for call in result.pending
    ]


def _cache(compiled: Compiled) -> Json:
    result, found = compiled.result, compiled.found_break
    tokens = compiled.calibration.tokens
    return {
        "breakpoints": [
            {"block": each.block, "tokens": tokens(each.tokens), "ttl": each.ttl}
            for each in result.breakpoints
        ],
        "shared_prefix_tokens": compiled.shared_prefix_tokens,
        "break_reason": None if found is None else found.reason,
        "break_seq": None if found is None else found.seq,
        "prompt_cache_key": result.cache_key or None,
        "lifecycle": _lifecycle(compiled.lifecycle),
    }


def _lifecycle(lifecycle: Lifecycle | None) -> Json:
    if lifecycle is None:
        return None
    return {
        "action": lifecycle.action,
        "reason": lifecycle.reason,
        "name": lifecycle.name,
        "contents_count": lifecycle.contents_count,
        "fingerprint": lifecycle.fingerprint,
        "invocations_used": lifecycle.invocations_used,
        "expire_time": lifecycle.expire_time,
    }


def _explained(row: EventTrace) -> Json:
    place: dict[str, Json] = {"seq": row.from_seq, "id": row.id}
    if row.to_seq > row.from_seq:
        place = {"from_seq": row.from_seq, "to_seq": row.to_seq}
    return {
        **place,
        "action": row.action,
        "pass": row.pass_name,
        "by_seq": row.by_seq,
        "block": row.block,
        "tokens": row.tokens,
    }


class CauseAnswer(AnswerModel):
    """Why two compiles differ."""

    reason: str
    """As `break_reason` has it, or `append`, `overlap` or `option`."""
    seq: int | None
    """The event that is the cause; null: none is."""


class TokenPairAnswer(AnswerModel):
    """Tokens of two compiles."""

    a: int
    """Of the first, by its model's count."""
    b: int
    """Of the second."""


class PricePairAnswer(AnswerModel):
    """What the input of two compiles costs; null where the model has no known price."""

    a: float | None
    """Of the input of the first, with what should be cached; null: no price is known."""
    b: float | None
    """Of the second."""
    currency: str
    """As in `USD`."""


class DiffAnswer(AnswerModel):
    """Where two compiles part."""

    same: bool
    """Whether both are the same request."""
    first_block: int | None
    """Index of the first content that differs; null: none, or what stands before."""
    cause: CauseAnswer | None
    """Why they differ; null: they do not."""
    text: str
    """All of it in sentences."""
    tokens: TokenPairAnswer
    """What each takes."""
    price: PricePairAnswer
    """What each costs."""


def diff_answer(comparison: Comparison) -> dict[str, Json]:
    """Return a comparison as it is answered."""
    cause = comparison.cause
    return {
        "same": comparison.is_same,
        "first_block": comparison.first_block,
        "cause": None if cause is None else {"reason": cause.reason, "seq": cause.seq},
        "text": comparison.text,
        "tokens": {"a": comparison.tokens_a, "b": comparison.tokens_b},
        "price": {
            "a": comparison.prices.a,
            "b": comparison.prices.b,
            "currency": comparison.prices.currency,
        },
    }


class ValidateBody(RequestModel):
    """A provider's request, to be checked."""

    format: FormatName
    """Of the request."""
    model: Word | None = None
    """Some rules are a model's."""
    request: JsonObject
    """The provider's body."""


class ViolationAnswer(AnswerModel):
    """A broken rule, and where."""

    rule: str
    """Which is broken, as a word."""
    path: str
    """JSON pointer into the request."""


class ValidateAnswer(AnswerModel):
    """What a provider would refuse."""

    valid: bool
    """Whether no rule is broken."""
    violations: list[ViolationAnswer]
    """In the order of the request."""


def validate_answer(violations: tuple[Violation, ...]) -> dict[str, Json]:
    """Return violations as they are answered."""
    found: list[Json] = [{"rule": each.rule, "path": each.path} for each in violations]
    return {"valid": not found, "violations": found}


class TokensBody(RequestModel):
    """A text, or contents of a format, to be counted."""

    format: FormatName | Literal["adk"] = "native"
    """Of the contents."""
    model: Word | None = None
    """Count as its rule assumes, media too; null: our own count."""
    contents: list[Any] | None = None
    """Contents, messages or items; these or `text`."""
    text: str | None = None
    """A text."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        only_one_of(self, "contents", "text")
        return self


class CountAnswer(AnswerModel):
    """Tokens, and how they were counted."""

    tokens: int
    """Our count."""
    method: str
    """Encoding of the tokenizer that counts."""
