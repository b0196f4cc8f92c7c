"""What holds for every provider's format alike."""

import json
from typing import Any

import pytest

from app.core.canonical import Json
from app.core.compile.inputs import CacheOptions
from app.core.contents import FileData, InlineData, Part, Text
from app.core.errors import InvalidInputError
from app.formats import CONVERTERS, FORMATS
from tests.compiling import append_items, body_of, compile_for, violations_of

PROVIDERS = sorted(FORMATS.keys() - {"native"})
#: "words" in base64.
DATA = "d29yZHM="
MIME_TYPES = (
    "application/octet-stream",
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/zip",
    "audio/mpeg",
    "audio/ogg",
    "audio/wav",
    "hologram",
    "image/png",
    "image/svg+xml",
    "image/tiff",
    "text/csv",
    "text/plain",
    "video/mp4",
    "video/ogg",
)
MEDIA: list[dict[str, Any]] = [
    *({"inline_data": {"mime_type": kind, "data": DATA}} for kind in MIME_TYPES),
    *({"file_data": {"file_uri": "gs://bucket/a", "mime_type": kind}} for kind in MIME_TYPES),
    *({"file_data": {"file_uri": "s3://bucket/a", "mime_type": kind}} for kind in MIME_TYPES),
    *({"file_data": {"file_uri": "https://x.example/a", "mime_type": k}} for k in MIME_TYPES),
    {"file_data": {"file_uri": "artifact://a"}},
    {"inline_data": {"mime_type": "image/png", "data": ""}},
]


def result_with(media: dict[str, Any], response: Json) -> list[Json]:
    call: Json = {"id": "c", "name": "f", "args": {}}
    result: Json = {"id": "c", "name": "f", "response": response, "parts": [media]}
    return [
        {"author": "user", "content": "go"},
        {"author": "agent", "content": {"role": "model", "parts": [{"function_call": call}]}},
        {"author": "agent", "content": {"role": "user", "parts": [{"function_response": result}]}},
    ]


@pytest.mark.parametrize("response", [{}, {"n": 1}, "", "said"], ids=repr)
@pytest.mark.parametrize("name", PROVIDERS)
def test_media_of_a_result_are_sent_or_told(name: str, response: Json) -> None:
    for media in MEDIA:
        result = compile_for(append_items("native", result_with(media, response)), name)
        assert violations_of(result, name) == (), media
        (value,) = media.values()
        sent = json.dumps(body_of(result, name)[FORMATS[name].history_field])
        told = f"[{value.get('mime_type', 'a file')} left out: this provider does not take it]"
        is_carried = value.get("data") == DATA and (DATA in sent or "words" in sent)
        is_carried = is_carried or f'"{value.get("file_uri")}"' in sent
        assert is_carried != (told in sent), media


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    "part",
    [
        InlineData(mime_type="image/png", data=""),
        InlineData(mime_type="application/pdf", data=""),
        InlineData(mime_type="application/zip", data="AAAA"),
        FileData(file_uri="artifact://a", mime_type="image/png"),
        Text(text=""),
        Text(text="", thought=True, signature="c2ln", signed_by="another"),
    ],
    ids=repr,
)
def test_what_no_provider_takes_is_left_out(name: str, part: Part) -> None:
    assert not FORMATS[name].says(part, "user")


DATA_URL = f"data:image/png;base64,{DATA}"
CITED: dict[str, Any] = {"context": "an old one", "citations": {"enabled": True}}
SEARCHED: dict[str, Any] = {
    "type": "web_search_result_location",
    "url": "https://x.example",
    "title": "X",
    "encrypted_index": "c2ln",
    "cited_text": "so",
}
IMAGES: list[Json] = [
    {"type": "input_image", "image_url": DATA_URL, "detail": "original"},
    {"type": "input_image", "image_url": "https://x.example/a", "detail": "high"},
]
PDF_BLOCK: dict[str, Any] = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
    "title": "a",
    **CITED,
}
BEDROCK_PDF: dict[str, Any] = {"format": "pdf", "source": {"bytes": DATA}, **CITED}


def holds(value: Json, wanted: Json) -> bool:
    """Tell whether a value stands somewhere in another."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value == wanted or any(holds(one, wanted) for one in inner)


def answering(name: str, *media: Json) -> list[Json]:
    """Return the call and the result of a format, the media in the result."""
    match name:
        case "anthropic":
            use: Json = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
            found: Json = {"type": "tool_result", "tool_use_id": "c", "content": list(media)}
            return [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [found]},
            ]
        case "bedrock":
            use = {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}
            found = {"toolUseId": "c", "content": list(media), "status": "success"}
            return [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"toolResult": found}]},
            ]
        case _:
            return [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": list(media)},
            ]


@pytest.mark.parametrize(
    ("name", "items", "expected"),
    [
        *(
            (
                "openai_chat",
                [{"role": "user", "content": [{"type": "image_url", "image_url": image}]}],
                image,
            )
            for image in (
                {"url": DATA_URL, "detail": "high"},
                {"url": "https://x.example/a.png", "detail": "low"},
            )
        ),
        *(
            ("openai_responses", items, image)
            for image in IMAGES
            for items in (
                [{"role": "user", "content": [image]}],
                answering("openai_responses", image),
            )
        ),
        ("anthropic", [{"role": "user", "content": [PDF_BLOCK]}], PDF_BLOCK),
        ("anthropic", answering("anthropic", PDF_BLOCK), PDF_BLOCK),
        (
            "anthropic",
            [
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "so", "citations": [SEARCHED]}],
                }
            ],
            {"type": "text", "text": "so", "citations": [SEARCHED]},
        ),
        (
            "bedrock",
            [{"role": "user", "content": [{"document": {**BEDROCK_PDF, "name": "a"}}]}],
            {**BEDROCK_PDF, "name": "a 2-0"},
        ),
        (
            "bedrock",
            answering("bedrock", {"document": {**BEDROCK_PDF, "name": "a"}}),
            {**BEDROCK_PDF, "name": "a 2e7d2c03-0"},
        ),
    ],
)
def test_what_the_model_reads_comes_back_to_its_provider(
    name: str, items: list[Json], expected: Json
) -> None:
    log = append_items(name, [{"role": "user", "content": "go"}, *items])
    result = compile_for(log, name, cache=CacheOptions(breakpoints="none"))
    assert violations_of(result, name) == ()
    assert holds(body_of(result, name), expected)
    for other in PROVIDERS:
        assert violations_of(compile_for(log, other), other) == ()


def test_who_called_a_tool_comes_back() -> None:
    call: dict[str, Any] = {
        "type": "tool_use",
        "id": "c",
        "name": "f",
        "input": {},
        "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"},
        "toolset_name": "t",
    }
    direct = {**call, "caller": {"type": "direct"}, "toolset_name": None}
    for block, expected in ((call, call), (direct, None)):
        turn: Json = {"role": "assistant", "content": [block]}
        log = append_items("anthropic", [{"role": "user", "content": "go"}, turn])
        (sent,) = body_of(compile_for(log, "anthropic"), "anthropic")["messages"][1]["content"]
        assert sent == (expected or {key: call[key] for key in ("type", "id", "name", "input")})


@pytest.mark.parametrize(
    "part",
    [
        {"text": "a", "anthropic_block": {"citations": "x"}},
        {"inline_data": {"mime_type": "application/pdf", "data": DATA}, "anthropic_block": CITED},
        {
            "inline_data": {"mime_type": "application/pdf", "data": DATA},
            "anthropic_block": {"citations": [], "context": 5},
        },
        {
            "inline_data": {"mime_type": "application/pdf", "data": DATA},
            "bedrock_block": {"citations": {}, "context": 5},
        },
        {
            "inline_data": {"mime_type": "image/png", "data": DATA},
            "openai_item": {"detail": 5},
        },
    ],
)
@pytest.mark.parametrize("name", PROVIDERS)
def test_what_does_not_fit_is_not_sent_beside_a_part(name: str, part: Json) -> None:
    said: Json = {"author": "user", "content": {"role": "user", "parts": [part]}}
    result = compile_for(append_items("native", [said]), name)
    assert violations_of(result, name) == ()


BROKEN: dict[str, tuple[str, str, Json]] = {
    "anthropic": ("anthropic", "document", {"type": "document", "source": {"type": "base64"}}),
    "bedrock": ("bedrock", "document", {"document": {"source": {"bytes": ""}}}),
    "gemini": ("gemini", "inlineData", {"inlineData": {"mimeType": "a/b", "data": "!!"}}),
    "openai_chat": ("openai", "file", {"type": "file", "file": {}}),
    "openai_responses": ("openai", "input_file", {"type": "input_file"}),
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_block_that_its_own_provider_gets_in_words_is_reported(name: str) -> None:
    for origin, (provider, kind, raw) in BROKEN.items():
        block: Json = {"provider": provider, "type": kind, "raw": raw, "text": "told"}
        said: Json = {"author": "user", "content": {"role": "user", "parts": [{"opaque": block}]}}
        result = compile_for(append_items("native", [said]), name)
        assert "told" in json.dumps(body_of(result, name))
        is_own = provider == BROKEN[name][0]
        told = [(each.rule, each.seq) for each in result.repairs]
        assert told == [("unsupported_part", 1)] * is_own, origin


@pytest.mark.parametrize("name", PROVIDERS)
def test_blank_system_text_is_not_sent(name: str) -> None:
    log = append_items("native", [{"author": "user", "content": "go"}])
    without, blank = (compile_for(log, name, system=system) for system in ("", "\n\u00a0"))
    assert violations_of(blank, name) == ()
    assert body_of(blank, name) == body_of(without, name)
    assert blank.fingerprint == without.fingerprint


@pytest.mark.parametrize("name", PROVIDERS)
def test_what_a_provider_answers_in_can_be_imported(name: str) -> None:
    assert name in CONVERTERS


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"anthropic", "native"}))
def test_a_tool_in_anthropics_shape_is_not_sent_without_its_schema(name: str) -> None:
    tool = '{"name":"f","input_schema":{"type":"object","properties":{"a":{}}}}'
    with pytest.raises(InvalidInputError) as caught:
        FORMATS[name].render_tools(['{"name":"g"}', tool])
    assert caught.value.pointer == "/tools/1"
