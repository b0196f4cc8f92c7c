"""Compile on the wire. The answer is joined from texts that are JSON already."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from app.api.schemas.events import Appended, append_answer, warning_answer
from app.api.schemas.fields import (
    BranchPath,
    JsonObject,
    Position,
    RequestModel,
    Seq,
    WaitMs,
    Word,
)
from app.core.canonical import Json, canonical_json, clean_text
from app.core.compile.explicit_cache import Lifecycle
from app.core.compile.inputs import (
    CacheOptions,
    CompileOptions,
    CompileResult,
    ExplicitCache,
    Instruction,
)
from app.core.compile.pipeline import PIPELINE_VERSION
from app.core.compile.trace import EventTrace
from app.core.contents import Part, Text
from app.core.errors import InvalidInputError
from app.core.lanes import Reader
from app.formats import FORMATS
from app.formats.adk import parse_content
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
    dynamic: str = ""
    global_: str = Field(default="", alias="global")
    description: str = ""

    def to_domain(self, pointer: str) -> Instruction:
        """Return the instruction."""
        is_text = isinstance(self.static, str)
        return Instruction(
            static=clean_text(str(self.static)) if is_text else "",
            static_parts=() if is_text else _parts(self.static, f"{pointer}/static"),
            dynamic=clean_text(self.dynamic),
            global_=clean_text(self.global_),
            description=clean_text(self.description),
        )


class BudgetField(RequestModel):
    """What the request may take, and what of it is kept for the answer."""

    max_input_tokens: Annotated[int, Field(ge=1)]
    reserve_output_tokens: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.reserve_output_tokens >= self.max_input_tokens:
            raise ValueError("reserve_output_tokens leaves nothing of max_input_tokens")
        return self

    @property
    def limit(self) -> int:
        """Tokens of the whole request."""
        return self.max_input_tokens - self.reserve_output_tokens


class ExplicitCacheField(RequestModel):
    """How an explicit cache is to be kept; what is left out is as the model's rule says."""

    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_CACHE_TTL_S)] | None = None
    cache_intervals: Annotated[int, Field(ge=1, le=MAX_CACHE_INTERVALS)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0

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
    ttl: Literal["5m", "1h"] = "5m"
    explicit: ExplicitCacheField | None = None

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
    branch: BranchPath = ""
    isolation_scope: Word | None = None
    node_path: BranchPath = ""
    format: FormatName = "gemini"
    model: Word | None = None
    preset: Literal["stable", "adk"] = "stable"
    include_contents: Literal["default", "none"] = "default"
    thinking: Literal["auto", "keep", "strip"] = "auto"
    narration: Literal["quoted", "name", "none"] = "quoted"
    ids: Literal["auto", "keep", "strip"] = "auto"
    unanswered_calls: Literal["auto", "close", "drop"] = "auto"
    foreign_thoughts: bool = False
    single_turn: bool = False
    user_content: ContentField | None = None
    instruction: InstructionField | None = None
    system: str = ""
    tools: list[JsonObject] = Field(default_factory=list)
    as_of_seq: Position | None = None
    expand: Annotated[list[Seq], Field(max_length=MAX_EXPANDED)] = Field(default_factory=list)
    budget: BudgetField | None = None
    cache: CacheField | None = None

    @model_validator(mode="after")
    def _drops_calls_only_under_adk(self) -> Self:
        if self.unanswered_calls == "drop" and self.preset != "adk":
            raise ValueError("unanswered_calls: drop goes with preset adk: stable closes them")
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
            else _parts(user_content, f"{pointer}/user_content"),
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
    base_fingerprint: Word | None = None
    explain: bool = False

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
    base_fingerprint: Word | None = None
    min_seq: Position | None = None
    inputs: Word | None = None
    explain: bool = False
    #: How long a fold that is due may hold up the answer.
    compaction_wait_ms: WaitMs = 0

    @model_validator(mode="after")
    def _splits_once(self) -> Self:
        return _split_once(self, self.base_fingerprint)

    @model_validator(mode="after")
    def _appends_at_the_head(self) -> Self:
        if self.append and self.as_of_seq is not None:
            raise ValueError("append goes with no as_of_seq: what is appended comes after it")
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
        raise ValueError("base_fingerprint goes with no cache.explicit: either splits the request")
    return fields


class DiffBody(RequestModel):
    """Two compiles of one session."""

    a: CompileFields
    b: CompileFields


def _parts(content: ContentField, pointer: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=clean_text(content)),)
    return parse_content(content, pointer, []).parts


# Answers


class TokensAnswer(BaseModel):
    """What the request will take."""

    total: int
    by_segment: dict[str, int]
    method: str
    error_bound: int


class PendingAnswer(BaseModel):
    """A call that a result may still answer."""

    call_id: str | None
    name: str
    seq: int


class BudgetActionAnswer(BaseModel):
    """One cut that was made to fit."""

    action: str
    seq: int | None
    tokens: int


class BudgetAnswer(BaseModel):
    """The limit, what is used of it, and what was cut for it."""

    limit: int | None
    used: int
    actions: list[BudgetActionAnswer]


class RepairAnswer(BaseModel):
    """What the provider would refuse, and what was done."""

    rule: str
    seq: int | None
    detail: str


class BreakpointAnswer(BaseModel):
    """A place up to which the provider is asked to cache."""

    block: str | int
    tokens: int
    ttl: str


class LifecycleAnswer(BaseModel):
    """What to do about the explicit cache, and what the reply's `cache_metadata` is to say."""

    action: Literal["none", "create", "use", "replace", "delete"]
    reason: str
    #: The cache to use or, of `replace` and `delete`, the one to delete.
    name: str | None
    contents_count: int
    fingerprint: str
    invocations_used: int | None
    expire_time: float | None


class CacheAnswer(BaseModel):
    """What the provider's cache is asked for, what it has, and why it will miss if it will."""

    breakpoints: list[BreakpointAnswer]
    shared_prefix_tokens: int
    break_reason: str | None
    break_seq: int | None
    prompt_cache_key: str | None
    lifecycle: LifecycleAnswer | None


class ReasoningAnswer(BaseModel):
    """What became of thinking, in items."""

    kept: int
    stripped: int
    invalidated: int


class InputsAnswer(BaseModel):
    """What was fetched beside the log."""

    digest: str


class ExplainedEvent(BaseModel):
    """What became of an event, or of a span of masked ones."""

    seq: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    id: str | None = None
    action: str
    pass_: str | None = Field(alias="pass")
    by_seq: int | None
    block: int | None
    tokens: int


class CompactionDue(BaseModel):
    """Whether a fold is due, and the job that sees to it or has seen to it."""

    due: bool
    reason: str | None
    job_id: str | None


class CompileAnswer(BaseModel):
    """A request for the provider, and what there is to say of it."""

    request: dict[str, Any]
    #: Body of the request that makes the explicit cache, but for the model; only where one is made.
    cache_segment: dict[str, Any] | None = None
    head_seq: int
    compiled_seq: int
    fingerprint: str
    prefix_fingerprint: str
    sent_fingerprint: str
    prefix_count: int
    base_count: int
    pending: list[PendingAnswer]
    cache: CacheAnswer
    tokens: TokensAnswer
    budget: BudgetAnswer
    reasoning: ReasoningAnswer
    repairs: list[RepairAnswer]
    warnings: list[str | dict[str, str]]
    inputs: InputsAnswer
    compaction: CompactionDue | None = None
    pipeline_version: str
    timing_ms: dict[str, float]
    events: list[ExplainedEvent] | None = None
    appended: list[Appended] | None = None


def compile_text(
    compiled: Compiled, notes: list[Note] | None = None, compaction: Scheduled | None = None
) -> str:
    """Return the answer as JSON text; what the provider gets is not decoded on the way."""
    request = f'"request":{_object_text(compiled.request)}'
    if compiled.cache_segment is not None:
        request += f',"cache_segment":{_object_text(compiled.cache_segment)}'
    beside = _beside_request(compiled, notes or [])
    if compaction is not None:
        beside["compaction"] = {
            "due": compaction.is_due,
            "reason": compaction.reason,
            "job_id": compaction.job_id,
        }
    rest = canonical_json(beside)
    return f"{{{request},{rest[1:]}"


def _object_text(texts: Mapping[str, str]) -> str:
    fields = ",".join(f"{canonical_json(key)}:{text}" for key, text in texts.items())
    return f"{{{fields}}}"


def _beside_request(compiled: Compiled, notes: list[Note]) -> dict[str, Json]:
    result = compiled.result
    appended = append_answer(compiled.appended) if compiled.appended is not None else {}
    warnings: list[Json] = [*result.warnings, *map(_warning, notes)]
    warnings += appended.get("warnings", [])
    answer: dict[str, Json] = {
        "head_seq": compiled.head_seq,
        "compiled_seq": compiled.compiled_seq,
        "fingerprint": result.fingerprint,
        "prefix_fingerprint": result.prefix_fingerprint,
        "sent_fingerprint": result.sent_fingerprint,
        "prefix_count": result.prefix_count,
        "base_count": compiled.base_count,
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


class CauseAnswer(BaseModel):
    """Why two compiles differ."""

    reason: str
    seq: int | None


class TokenPairAnswer(BaseModel):
    """Tokens of two compiles."""

    a: int
    b: int


class PricePairAnswer(BaseModel):
    """What the input of two compiles costs; null where the model has no known price."""

    a: float | None
    b: float | None
    currency: str


class DiffAnswer(BaseModel):
    """Where two compiles part."""

    same: bool
    first_block: int | None
    cause: CauseAnswer | None
    text: str
    tokens: TokenPairAnswer
    price: PricePairAnswer


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
    model: Word | None = None
    request: JsonObject


class ViolationAnswer(BaseModel):
    """A broken rule, and where."""

    rule: str
    path: str


class ValidateAnswer(BaseModel):
    """What a provider would refuse."""

    valid: bool
    violations: list[ViolationAnswer]


def validate_answer(violations: tuple[Violation, ...]) -> dict[str, Json]:
    """Return violations as they are answered."""
    found: list[Json] = [{"rule": each.rule, "path": each.path} for each in violations]
    return {"valid": not found, "violations": found}


class TokensBody(RequestModel):
    """A text, or contents of a format, to be counted."""

    format: FormatName | Literal["adk"] = "native"
    model: Word | None = None
    contents: list[Any] | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.contents is None) == (self.text is None):
            raise ValueError("exactly one of contents and text is needed")
        return self


class CountAnswer(BaseModel):
    """Tokens, and how they were counted."""

    tokens: int
    method: str
