"""One item of everything that each format has, as its provider would send or take it."""

from typing import Any, Final

PIXEL: Final = "iVBORw0KGgo="
_DATA_URL: Final = f"data:image/png;base64,{PIXEL}"

_OPENAI_CHAT: Final[list[Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "name": "ada", "content": "hi"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": _DATA_URL, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": _DATA_URL}},
        ],
    },
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "so"}],
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "done"}]},
]

_OPENAI_RESPONSES: Final[list[Any]] = [
    {"role": "user", "content": "hi"},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": _DATA_URL, "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": _DATA_URL},
        ],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "so", "annotations": []}],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "c2ln",
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "f",
        "arguments": '{"a":1}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": "done"},
            {"type": "input_image", "image_url": _DATA_URL},
        ],
    },
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "raw"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
]

_ANTHROPIC: Final[list[Any]] = [
    {"role": "user", "content": "hi"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
            },
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {
                "type": "document",
                "title": "a",
                "source": {"type": "text", "media_type": "text/plain", "data": "words"},
            },
        ],
    },
    {
        "id": "msg_1",
        "model": "claude-opus-5",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "c2ln"},
            {"type": "text", "text": "so"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "done", "is_error": False},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": [
                    {"type": "text", "text": "done"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            },
        ],
    },
]

_BEDROCK: Final[list[Any]] = [
    {
        "role": "user",
        "content": [
            {"text": "look"},
            {"image": {"format": "png", "source": {"bytes": PIXEL}}},
            {
                "document": {
                    "format": "pdf",
                    "name": "a",
                    "source": {"s3Location": {"uri": "s3://bucket/a.pdf"}},
                }
            },
            {"cachePoint": {"type": "default"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
            {"text": "so"},
            {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "c1",
                    "status": "success",
                    "content": [
                        {"text": "done"},
                        {"json": {"a": 1}},
                        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
                    ],
                }
            }
        ],
    },
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "so"}]}},
        "usage": {"inputTokens": 5, "outputTokens": 1, "totalTokens": 6},
    },
]

_GEMINI: Final[list[Any]] = [
    {"role": "user", "parts": [{"text": "hi"}]},
    {
        "role": "user",
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": PIXEL, "displayName": "a"}},
            {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {
                "functionCall": {"id": "c1", "name": "f", "args": {"a": 1}},
                "thoughtSignature": "c2ln",
            },
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "c1",
                    "name": "f",
                    "response": {"ok": 1},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
                }
            }
        ],
    },
]

_EVENT: Final[Any] = {
    "id": "e1",
    "invocationId": "i1",
    "author": "agent",
    "branch": "root.agent",
    "timestamp": 1.5,
    "content": {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "c9", "name": "f", "args": {"a": [1]}}},
            {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
            {"fileData": {"fileUri": "gs://bucket/a.pdf"}},
        ],
    },
    "actions": {
        "stateDelta": {"k": 1},
        "artifactDelta": {"f": 1},
        "transferToAgent": "other",
        "requestedToolConfirmations": {"c9": {"hint": "sure?"}},
    },
    "usageMetadata": {"promptTokenCount": 5},
    "cacheMetadata": {"fingerprint": "f", "contentsCount": 2, "invocationsUsed": 1},
    "longRunningToolIds": ["c9"],
    "customMetadata": {"a": 1},
    "compiledSeq": 0,
    "compiledFingerprint": "f",
    "responseId": "r1",
    "outputTranscription": {"text": "t", "finished": True},
    "nodeInfo": {"path": "a/b"},
}
_CONTENT: Final[Any] = {"role": "user", "parts": [{"text": "hi"}]}
_INVOCATION: Final[Any] = {
    "invocationId": "i1",
    "userContent": _CONTENT,
    "finalResponse": {"parts": [{"text": "so"}]},
    "creationTimestamp": 1.5,
    "intermediateData": {
        "toolUses": [{"name": "f", "args": {"a": 1}, "id": "c1"}],
        "toolResponses": [{"name": "f", "response": {"ok": 1}, "id": "c1"}],
        "intermediateResponses": [["agent", [{"text": "hm"}]]],
    },
}

_ADK: Final[list[Any]] = [
    _EVENT,
    {"id": "s", "events": [_EVENT, {"author": "user", "content": "hi"}]},
    _CONTENT,
    _INVOCATION,
    {"evalId": "a", "evalCases": [{"evalId": "b", "conversation": [_INVOCATION]}]},
    {
        "query": "q",
        "expectedToolUse": [{"toolName": "f", "toolInput": {"a": 1}}],
        "expectedIntermediateAgentResponses": [{"author": "agent", "text": "hm"}],
        "reference": "so",
    },
]

#: By format.
ITEMS: Final[dict[str, list[Any]]] = {
    "adk": _ADK,
    "anthropic": _ANTHROPIC,
    "bedrock": _BEDROCK,
    "gemini": _GEMINI,
    "openai_chat": _OPENAI_CHAT,
    "openai_responses": _OPENAI_RESPONSES,
}
