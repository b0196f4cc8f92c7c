"""Check request bodies against what the official SDKs say that a request is, closed.

Our own rules are written from documentation; this is the providers' own word, of which nothing here
was copied. Each check returns what keeps a body from being a request of that API.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import botocore.session  # type: ignore[import-untyped]
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from google.genai import types
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter, ValidationError

from tests.closed_types import mismatches

Body = Mapping[str, Any]


def _anthropic(body: Body) -> list[str]:
    request = {"model": "m", "max_tokens": 1, **body}
    return mismatches(request, MessageCreateParamsNonStreaming)


def _openai_chat(body: Body) -> list[str]:
    return mismatches({"model": "m", **body}, CompletionCreateParamsNonStreaming)


def _openai_responses(body: Body) -> list[str]:
    return mismatches({"model": "m", **body}, ResponseCreateParamsNonStreaming)


# The models of google-genai forbid what they do not know; the request's own model belongs to its
# client, which takes keyword arguments instead.
_GEMINI: Final[Mapping[str, TypeAdapter[Any]]] = {
    "contents": TypeAdapter(list[types.Content]),
    "system_instruction": TypeAdapter(types.Content),
    "tools": TypeAdapter(list[types.Tool]),
}


def _gemini(body: Body) -> list[str]:
    found: list[str] = []
    for key, value in body.items():
        if key not in _GEMINI:
            found.append(f"/{key}: unknown key")
            continue
        try:
            _GEMINI[key].validate_python(value)
        except ValidationError as error:
            found += [f"/{key}/{'/'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    return found


def _bedrock(body: Body) -> list[str]:
    shape = _converse()
    request = {"modelId": "m", **body}
    report = ParamValidator().validate(_with_bytes(request, shape), shape).generate_report()
    return [*report.splitlines(), *_outside(request, shape, "")]


@cache
def _converse() -> Any:
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    return model.operation_model("Converse").input_shape


def _with_bytes(value: Any, shape: Any) -> Any:
    """Decode what the SDK takes as bytes and the HTTP API as base64."""
    if shape.type_name == "blob" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            return None
    if shape.type_name == "list" and isinstance(value, list):
        return [_with_bytes(item, shape.member) for item in value]
    if _is_object(value, shape):
        members = shape.members
        return {
            key: _with_bytes(item, members[key]) if key in members else item
            for key, item in value.items()
        }
    return value


def _is_object(value: Any, shape: Any) -> bool:
    is_free = getattr(shape, "is_document_type", False)
    return shape.type_name == "structure" and isinstance(value, dict) and not is_free


def _outside(value: Any, shape: Any, path: str) -> Iterator[str]:
    """Yield the texts outside their enumeration, pattern or length, which botocore leaves to the
    service."""
    if shape.type_name == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _outside(item, shape.member, f"{path}/{index}")
    elif _is_object(value, shape):
        for key, item in value.items():
            if key in shape.members:
                yield from _outside(item, shape.members[key], f"{path}/{key}")
    elif shape.type_name == "string" and isinstance(value, str):
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value!r} is none of {shape.enum}"
        pattern = shape.metadata.get("pattern")
        if pattern and not re.fullmatch(pattern, value, re.DOTALL):
            yield f"{path}: {value!r} does not match {pattern}"
        if len(value) > shape.metadata.get("max", len(value)):
            yield f"{path}: longer than {shape.metadata['max']}"


#: By format: what keeps a body from being a request, with the path of each.
SDK_CHECKS: Final[Mapping[str, Callable[[Body], list[str]]]] = {
    "anthropic": _anthropic,
    "bedrock": _bedrock,
    "gemini": _gemini,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
}
