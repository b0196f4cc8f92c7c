"""Provider errors, row by row: what is too long, what is malformed, and what only looks like it."""

import json
from typing import Any

import pytest

from app.core.overflow import ROWS, is_truncated, read_error

#: Status, body, row, limit, input, output.
OVERFLOWS: list[tuple[int, Any, str, int | None, int | None, int | None]] = [
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum",
            },
        },
        "anthropic_prompt",
        200_000,
        213_462,
        None,
    ),
    (
        400,
        (
            "input length and `max_tokens` exceed context limit: 196973 + 8192 > 204648, decrease "
            "input length or `max_tokens` and try again"
        ),
        "anthropic_with_output",
        204_648,
        196_973,
        8_192,
    ),
    (413, {"error": {"type": "request_too_large"}}, "anthropic_body", None, None, None),
    (
        200,
        {"stop_reason": "model_context_window_exceeded"},
        "anthropic_stopped",
        None,
        None,
        None,
    ),
    (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens. However, your "
                "messages resulted in 130412 tokens. Please reduce the length of the messages.",
                "code": "context_length_exceeded",
            }
        },
        "openai_messages",
        128_000,
        130_412,
        None,
    ),
    (
        400,
        (
            "This model's maximum context length is 8192 tokens. However, you requested 10000 "
            "tokens (7952 in the messages, 2048 in the completion)."
        ),
        "openai_parts",
        8_192,
        7_952,
        2_048,
    ),
    (
        400,
        {"error": {"message": "Your input exceeds the context window of this model."}},
        "openai_responses",
        None,
        None,
        None,
    ),
    (
        400,
        "Input tokens exceed the configured limit of 272000 tokens.",
        "openai_responses",
        None,
        None,
        None,
    ),
    (
        400,
        {"response": {"error": {"code": "context_length_exceeded", "message": ""}}},
        "context_length_exceeded",
        None,
        None,
        None,
    ),
    (
        429,
        (
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): "
            "Limit 30000, Requested 33000. The input or output tokens must be reduced."
        ),
        "openai_tpm",
        30_000,
        33_000,
        None,
    ),
    (
        400,
        {
            "error": {
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (1196265) exceeds the maximum number of tokens "
                "allowed (1048575).",
            }
        },
        "gemini",
        1_048_575,
        1_196_265,
        None,
    ),
    (
        400,
        "The input token count 140000 exceeds the maximum number of tokens allowed 131072.",
        "gemini",
        131_072,
        140_000,
        None,
    ),
    (400, "Input is too long for requested model.", "bedrock", None, None, None),
    (400, {"message": "prompt is too long"}, "bedrock", None, None, None),
    (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "xai",
        131_072,
        537_812,
        None,
    ),
    (413, "Please reduce the length of the messages or completion.", "groq", None, None, None),
    (
        400,
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about "
            "40960 tokens."
        ),
        "openrouter",
        32_768,
        40_960,
        None,
    ),
    (
        400,
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about "
            "40960 tokens (36864 of text input, 4096 in the output)."
        ),
        "openai_parts",
        32_768,
        36_864,
        4_096,
    ),
    (
        400,
        (
            "Prompt contains 40032 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length"
        ),
        "mistral",
        32_768,
        40_032,
        None,
    ),
    (
        400,
        "prompt token count of 130,100 exceeds the limit of 128,000",
        "copilot",
        128_000,
        130_100,
        None,
    ),
    (400, "the request exceeds the available context size.", "llama_cpp", None, None, None),
    (
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length",
        "lm_studio",
        None,
        None,
        None,
    ),
    (400, "This model's maximum context length is 4096.", "vllm", 4_096, None, None),
    (
        400,
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        "tgi",
        4_096,
        None,
        None,
    ),
    (
        400,
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
        "kimi",
        131_072,
        140_000,
        None,
    ),
    (
        400,
        "invalid params, context window exceeds limit (2013)",
        "minimax",
        None,
        None,
        None,
    ),
    (
        400,
        "Please reduce the length of the messages. Current length is 9000 while limit is 8192",
        "cerebras",
        8_192,
        9_000,
        None,
    ),
    (413, "Request too large", "anthropic_body", None, None, None),
    (
        400,
        "Input length 4800000 exceeds customer model maximum of 200000",
        "bedrock_mantle",
        200_000,
        4_800_000,
        None,
    ),
    (400, "exceeded model maximum", "bedrock_mantle", None, None, None),
    (
        400,
        "Error code: 400 - exceed model maximum context length",
        "bedrock_mantle",
        None,
        None,
        None,
    ),
    (400, "too many total text bytes", "bedrock_bytes", None, None, None),
    (400, "messages.3: Input is too long", "bedrock", None, None, None),
    (400, "input length exceeds context window", "beyond_context", None, None, None),
    (
        400,
        "input and output tokens exceed your context limit",
        "beyond_context",
        None,
        None,
        None,
    ),
    (400, "the input length exceeds the context length", "beyond_context", None, None, None),
    (400, "the prompt is longer than the context length", "beyond_context", None, None, None),
    (
        500,
        "prompt too long; exceeded max context length by 100 tokens",
        "beyond_context",
        None,
        None,
        None,
    ),
    (
        400,
        "Your prompt is longer than the model's context length of 32,768 tokens",
        "beyond_context",
        32_768,
        None,
        None,
    ),
    (400, "this request exceeds the available context", "llama_cpp", None, None, None),
    (
        400,
        "request (5321 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "llama_cpp",
        4_096,
        5_321,
        None,
    ),
    (400, "You reached the model's maximum context limit.", "vllm", None, None, None),
    (
        400,
        "The prompt (total length 5000) exceeds the max_model_len (4096).",
        "vllm_length",
        4_096,
        5_000,
        None,
    ),
    (
        400,
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. "
            "Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        "vllm_length",
        4_096,
        5_000,
        None,
    ),
    (400, "the request exceeds the max_model_len", "vllm_length", None, None, None),
    (
        400,
        "Input prompt (5000 tokens) is too long and exceeds limit of 4096",
        "vllm_prompt",
        4_096,
        5_000,
        None,
    ),
    (
        422,
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "tgi_inputs",
        4_096,
        5_000,
        None,
    ),
    (400, {"error": "too many tokens"}, "too_many_tokens", None, None, None),
    (
        400,
        "Too many tokens: 140000 tokens were sent, 131072 are the most.",
        "too_many_tokens",
        None,
        None,
        None,
    ),
    (413, "", "no_body", None, None, None),
    (400, None, "no_body", None, None, None),
]

MALFORMED: list[tuple[str, str]] = [
    (
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: t1",
        "anthropic_call_unanswered",
    ),
    (
        (
            "unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block "
            "must have a corresponding `tool_use` block in the previous message."
        ),
        "anthropic_result_without_call",
    ),
    ("found multiple `tool_result` blocks with id: t1", "anthropic_results_repeated"),
    ("each tool_use must have a single result", "anthropic_one_result"),
    (
        'messages: roles must alternate between "user" and "assistant"',
        "roles_alternate",
    ),
    (
        (
            "A conversation must alternate between user and assistant roles. Make sure the "
            "conversation alternates between user and assistant roles and try again."
        ),
        "roles_alternate",
    ),
    (
        (
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to "
            "a different conversation."
        ),
        "anthropic_thinking_bound",
    ),
    (
        (
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message."
        ),
        "anthropic_prefill",
    ),
    (
        (
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: c1"
        ),
        "openai_call_unanswered",
    ),
    ("No tool output found for function call call_1.", "openai_call_unanswered"),
    (
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "openai_result_without_call",
    ),
    (
        "No tool call found for function call output with call_id call_1.",
        "openai_result_without_call",
    ),
    (
        (
            "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' "
            "item: 'rs_1'."
        ),
        "openai_reasoning_pair",
    ),
    (
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "openai_reasoning_pair",
    ),
    ("The encrypted content gAAA... could not be verified.", "openai_encrypted_content"),
    (
        "thinking is enabled but reasoning_content is missing in assistant tool call message",
        "reasoning_content_missing",
    ),
    (
        (
            "Please ensure that function call turn comes immediately after a user turn or after a "
            "function response turn."
        ),
        "gemini_turn_order",
    ),
    (
        "Please ensure that function response turn comes immediately after a function call turn.",
        "gemini_turn_order",
    ),
    (
        (
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn."
        ),
        "gemini_response_count",
    ),
    (
        "Function call is missing a thought_signature in functionCall parts. position 2",
        "gemini_signature",
    ),
    ("Corrupted thought signature.", "gemini_signature"),
    (
        (
            "The number of toolResult blocks at messages.2.content exceeds the number of toolUse "
            "blocks of previous turn."
        ),
        "bedrock_result_count",
    ),
    (
        "Conversation blocks and tool result blocks cannot be provided in the same turn.",
        "bedrock_blocks_mixed",
    ),
]

FALSE_FRIENDS: list[tuple[int, Any, str | None]] = [
    (
        400,
        {
            "error": {
                "message": "Invalid 'messages[1].content': string too long. Expected a string with "
                "maximum length 10485760, but got a string with length 11000000 instead.",
                "code": "string_above_max_length",
            }
        },
        "openai_string_length",
    ),
    (
        429,
        (
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, "
            "Requested 2000. Please try again in 2s."
        ),
        "rate_limited",
    ),
    (429, "Too many tokens, please wait before trying again.", "bedrock_throttled"),
    (429, "Too many tokens per day, please wait before trying again.", "bedrock_throttled"),
    (400, "ThrottlingException: Too many tokens per minute", "bedrock_throttled"),
    (503, "Too many tokens per minute, please wait", "bedrock_throttled"),
    (429, "Too many tokens", None),
    (400, "context_length must be a positive integer", None),
    (400, "name is longer than 64 characters", None),
    (400, "The model `x` has no context window of that size", None),
    (
        400,
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens.",
        "output_too_large",
    ),
    (500, "Internal server error", None),
    (500, "", None),
    (401, {"error": {"message": "Incorrect API key provided"}}, None),
    (400, "tools.0.name: too long", None),
]


@pytest.mark.parametrize(("status", "body", "row", "limit", "given", "output"), OVERFLOWS)
def test_an_overflow_is_told_with_its_numbers(
    *,
    status: int,
    body: Any,
    row: str,
    limit: int | None,
    given: int | None,
    output: int | None,
) -> None:
    reading = read_error(status, body)
    assert (reading.kind, reading.row) == ("overflow", row)
    assert (reading.limit_tokens, reading.input_tokens) == (limit, given)
    assert reading.output_tokens == output


@pytest.mark.parametrize(("text", "row"), MALFORMED)
def test_a_malformed_history_is_told_apart(text: str, row: str) -> None:
    reading = read_error(400, {"error": {"message": text}})
    assert (reading.kind, reading.row) == ("malformed_history", row)
    assert not reading.is_overflow


@pytest.mark.parametrize(("status", "body", "row"), FALSE_FRIENDS)
def test_what_only_looks_like_an_overflow_is_none(status: int, body: Any, row: str | None) -> None:
    reading = read_error(status, body)
    assert (reading.kind, reading.row) == ("other", row)


def test_every_row_has_its_case() -> None:
    tried = {case[2] for case in OVERFLOWS} | {row for _, row in MALFORMED}
    tried |= {row for _, _, row in FALSE_FRIENDS if row}
    assert {row.name for row in ROWS} == tried


def test_a_routers_error_may_hold_the_providers_as_text() -> None:
    inner = json.dumps({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}})
    reading = read_error(400, {"error": {"message": "Provider error", "metadata": {"raw": inner}}})
    assert reading.limit_tokens == 8


def test_of_a_limit_on_both_the_output_is_taken_off() -> None:
    reading = read_error(
        400, "input length and `max_tokens` exceed context limit: 190 + 20 > 200, decrease"
    )
    assert reading.input_limit_tokens == 180


def test_a_provider_that_cuts_in_silence_is_caught_by_what_it_reports() -> None:
    assert is_truncated(10_000, 4_096)
    assert not is_truncated(10_000, 9_000)
    assert not is_truncated(500, 100)
