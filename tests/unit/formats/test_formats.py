"""What holds for every provider's format alike."""

import json
from typing import Any

import pytest

from app.core.canonical import Json
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
