"""What a provider's error says of the request's size, and what only looks like it.

One row per wording that was seen, as data: the first row that fits decides, so what must not be
taken for an overflow stands first. A row for a malformed history is told apart: there the request
was wrong, not too long, and that is our own fault.

The wordings are those of ``spec/PROVIDERS.md`` §8 and §1 to §5, and of ``spec/STRANDS.md`` §13
(checked 2026-11-30).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.core.canonical import Json

#: ``overflow``: a smaller request helps, and only that. ``malformed_history``: the provider refuses
#: how calls, results, turns or reasoning stand together. ``other``: neither.
ErrorKind: TypeAlias = Literal["overflow", "malformed_history", "other"]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A wording."""

    name: str
    kind: ErrorKind
    #: Sought in all that the error says. Its groups may be named ``limit``, ``input``, ``output``
    #: and ``total`` (input and output).
    pattern: re.Pattern[str]
    #: Only with these statuses; empty: with any.
    statuses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReading:
    """What an error says."""

    kind: ErrorKind
    #: The row that decided; None: none did.
    row: str | None = None
    #: Tokens that the model takes, of input and output together where the output is given.
    limit_tokens: int | None = None
    #: Tokens of the input, and what was asked for as output, as the provider counts.
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def is_overflow(self) -> bool:
        """Tell whether a smaller request helps."""
        return self.kind == "overflow"

    @property
    def input_limit_tokens(self) -> int | None:
        """Tokens that the input may take."""
        if self.limit_tokens is None:
            return None
        return max(1, self.limit_tokens - (self.output_tokens or 0))


_N: Final = r"[\d,]*\d"


def _row(name: str, kind: ErrorKind, pattern: str, *statuses: int) -> ErrorRow:
    pattern = re.sub(r"<(\w+)>", lambda m: f"(?P<{m[1]}>{_N})", pattern)
    return ErrorRow(name, kind, re.compile(pattern, re.IGNORECASE | re.DOTALL), statuses)


ROWS: Final[tuple[ErrorRow, ...]] = (
    # False friends first: each of these holds words that a row below would take.
    _row("openai_string_length", "other", r"string_above_max_length|string too long"),
    _row(
        "bedrock_throttled",
        "other",
        r"too many tokens(?: per |.{0,20} please wait)|throttlingexception",
    ),
    _row("output_too_large", "other", r"max_(?:completion_|output_)?tokens.{0,20} is too large"),
    # One request larger than a whole minute's allowance never gets through.
    _row(
        "openai_tpm",
        "overflow",
        r"request too large for .*? tokens per min.*?limit:? <limit>, requested:? <input>",
    ),
    _row("rate_limited", "other", r"rate.?limit|tokens per (?:min|day)|quota", 429),
    # A history that stands together wrongly.
    _row(
        "anthropic_call_unanswered",
        "malformed_history",
        r"`tool_use` ids were found without `tool_result`",
    ),
    _row("anthropic_result_without_call", "malformed_history", r"unexpected `tool_use_id` found"),
    _row("anthropic_results_repeated", "malformed_history", r"multiple `tool_result` blocks"),
    _row(
        "anthropic_one_result", "malformed_history", r"each `?tool_use`? must have a single result"
    ),
    _row("roles_alternate", "malformed_history", r"(?:roles? must|must) alternate between"),
    _row(
        "anthropic_thinking_bound",
        "malformed_history",
        r"block is bound to a different conversation|invalid `signature` in `thinking` block",
    ),
    _row(
        "anthropic_prefill",
        "malformed_history",
        r"does not support assistant (?:message )?prefill"
        r"|conversation must end with a user (?:message|turn)",
    ),
    _row(
        "openai_call_unanswered",
        "malformed_history",
        r"'tool_calls' must be followed by tool messages|no tool output found for function call",
    ),
    _row(
        "openai_result_without_call",
        "malformed_history",
        r"must be a response to a prece(?:d|ed)ing message with 'tool_calls'"
        r"|no tool call found for function call output",
    ),
    _row(
        "openai_reasoning_pair",
        "malformed_history",
        r"was provided without its required (?:'reasoning' item|following item)",
    ),
    _row(
        "openai_encrypted_content",
        "malformed_history",
        r"invalid_encrypted_content|encrypted content.{0,40}could not be verified",
    ),
    _row(
        "reasoning_content_missing",
        "malformed_history",
        r"reasoning_content is missing in assistant tool call message",
    ),
    _row(
        "gemini_turn_order",
        "malformed_history",
        r"function (?:call|response) turn comes immediately after",
    ),
    _row(
        "gemini_response_count",
        "malformed_history",
        r"number of function response parts is equal to the number of function call parts",
    ),
    _row(
        "gemini_signature",
        "malformed_history",
        r"missing a thought_signature|(?:invalid|corrupted) thought signature",
    ),
    _row(
        "bedrock_result_count",
        "malformed_history",
        r"toolresult blocks at .*? exceeds the number of tooluse blocks",
    ),
    _row(
        "bedrock_blocks_mixed",
        "malformed_history",
        r"tool result blocks cannot be provided in the same turn",
    ),
    # Too long.
    _row(
        "anthropic_prompt",
        "overflow",
        r"prompt is too long: <input> tokens > <limit> maximum",
    ),
    _row(
        "anthropic_with_output",
        "overflow",
        r"input length and `max_tokens` exceed context limit: <input> \+ <output> > <limit>",
    ),
    _row(
        "anthropic_body",
        "overflow",
        r"request[_ ]too[_ ]large|request exceeds the maximum size",
        413,
    ),
    _row("anthropic_stopped", "overflow", r"model_context_window_exceeded"),
    _row(
        "openai_parts",
        "overflow",
        r"maximum context length is <limit> tokens.*?requested (?:about )?<total> tokens"
        r".*?\((?:about )?<input> (?:in the messages|of text input)"
        r"(?:.*?<output> in the (?:completion|output))?",
    ),
    _row(
        "openai_messages",
        "overflow",
        r"maximum context length is <limit> tokens.*?resulted in <input> tokens",
    ),
    _row(
        "openrouter",
        "overflow",
        r"maximum context length is <limit> tokens.*?requested (?:about )?<total> tokens",
    ),
    _row(
        "openai_responses",
        "overflow",
        r"input exceeds the context window|input tokens exceed the configured limit",
    ),
    _row(
        "gemini",
        "overflow",
        r"input token count \(?<input>\)? exceeds the maximum number of tokens allowed"
        r" \(?<limit>\)?",
    ),
    _row(
        "vllm_prompt",
        "overflow",
        r"input prompt \(<input> tokens\) is too long and exceeds limit of <limit>",
    ),
    _row("bedrock", "overflow", r"(?:input|prompt) is too long"),
    _row("bedrock_bytes", "overflow", r"too many total text bytes"),
    _row(
        "bedrock_mantle",
        "overflow",
        r"(?:input length <input> )?exceed(?:s|ed)? (?:customer )?model maximum(?: of <limit>)?",
    ),
    _row(
        "xai",
        "overflow",
        r"maximum prompt length is <limit> but the request contains <input> tokens",
    ),
    _row("groq", "overflow", r"please reduce the length of the messages or completion"),
    _row(
        "mistral",
        "overflow",
        r"prompt contains <input> tokens.*?too large for model with <limit> maximum",
    ),
    _row("copilot", "overflow", r"prompt token count of <input> exceeds the limit of <limit>"),
    _row(
        "llama_cpp",
        "overflow",
        r"(?:request \(<input> tokens\) )?exceeds? the available context"
        r"(?: size \(<limit> tokens\))?",
    ),
    _row(
        "lm_studio",
        "overflow",
        r"tokens to keep from the initial prompt is greater than the context length",
    ),
    _row("tgi", "overflow", r"`inputs` tokens \+ `max_new_tokens` must be <= <limit>"),
    _row("tgi_inputs", "overflow", r"`inputs` must have less than <limit> tokens. given: <input>"),
    _row("vllm", "overflow", r"maximum context (?:length|limit)(?: (?:is|of) <limit>)?"),
    _row(
        "vllm_length",
        "overflow",
        r"(?:prompt \((?:total )?length <input>\) )?"
        r"(?:exceeds the max_model_len|is longer than the maximum model length)"
        r"(?: (?:of )?\(?<limit>)?",
    ),
    _row("kimi", "overflow", r"exceeded model token limit:? <limit> \(requested:? <input>\)"),
    _row("minimax", "overflow", r"context window exceeds limit"),
    _row("cerebras", "overflow", r"current length is <input> while limit is <limit>"),
    # Ollama, Anthropic's wrappers, LlamaAPI and Writer, in many words.
    _row(
        "beyond_context",
        "overflow",
        r"(?:exceed(?:s|ed)?|is longer than) (?:the |your )?(?:model's )?(?:max(?:imum)? )?"
        r"context (?:length|limit|window)(?: of <limit>)?",
    ),
    _row("context_length_exceeded", "overflow", r"context_length_exceeded"),
    # As a rate limit it comes with 429.
    _row("too_many_tokens", "overflow", r"too many tokens", 400, 413, 422),
    # Some say nothing at all.
    _row("no_body", "overflow", r"\A\s*\Z", 400, 413),
)


#: An error says what it has to say at its beginning; a body may be of any size.
MAX_CHARACTERS: Final = 20_000


def read_error(status: int, body: Json) -> ErrorReading:
    """Return what an error says.

    Args:
        status: of the provider's answer.
        body: its body, as parsed JSON or as text.
    """
    said = "\n".join(_texts(body))[:MAX_CHARACTERS]
    for row in ROWS:
        if row.statuses and status not in row.statuses:
            continue
        match = row.pattern.search(said)
        if match is not None:
            return _reading(row, match)
    return ErrorReading(kind="other")


def _reading(row: ErrorRow, match: re.Match[str]) -> ErrorReading:
    found = {name: int(text.replace(",", "")) for name, text in match.groupdict().items() if text}
    given, output = found.get("input"), found.get("output")
    if given is None and "total" in found:
        given = found["total"]
    elif given is not None and output is None and found.get("total", 0) > given:
        output = found["total"] - given
    return ErrorReading(
        kind=row.kind,
        row=row.name,
        limit_tokens=found.get("limit"),
        input_tokens=given,
        output_tokens=output,
    )


def _texts(value: Json) -> Iterator[str]:
    """Yield every text of a body; errors of routers hold the provider's own as text inside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


#: A provider that reports less than this part of what was sent has cut the rest off in silence.
TRUNCATED_BELOW: Final = 0.6
#: Below this, a few tokens of framing decide.
TRUNCATION_MIN_TOKENS: Final = 2_000


def is_truncated(sent_tokens: int, reported_tokens: int) -> bool:
    """Tell whether a provider answered as if all was well, but read only a part of the request."""
    return sent_tokens >= TRUNCATION_MIN_TOKENS and reported_tokens < TRUNCATED_BELOW * sent_tokens
