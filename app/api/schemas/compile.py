"""What a compile is asked, on the wire."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from app.api.schemas.fields import (
    BranchPath,
    FieldRuleError,
    JsonObject,
    Position,
    RequestModel,
    ScopeName,
    Seq,
    WaitMs,
    Word,
)
from app.core.canonical import canonical_json, clean_text
from app.core.compile.inputs import CacheOptions, CompileOptions, ExplicitCache, Instruction
from app.core.contents import FileData, InlineData, Part, Text
from app.core.copying import replace
from app.core.errors import InvalidInputError
from app.core.lanes import Reader
from app.formats import FORMATS
from app.formats.adk import parse_content, parse_part
from app.formats.tool_names import check_tool_names
from app.services.compiled import CompileRequest

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
