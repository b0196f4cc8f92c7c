"""What holds for every provider's format alike."""

import pytest

from app.core.contents import FileData, InlineData, Part, Text
from app.core.errors import InvalidInputError
from app.formats import CONVERTERS, FORMATS

PROVIDERS = sorted(FORMATS.keys() - {"native"})


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
def test_what_a_provider_answers_in_can_be_imported(name: str) -> None:
    assert name in CONVERTERS


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"anthropic", "native"}))
def test_a_tool_in_anthropics_shape_is_not_sent_without_its_schema(name: str) -> None:
    tool = '{"name":"f","input_schema":{"type":"object","properties":{"a":{}}}}'
    with pytest.raises(InvalidInputError) as caught:
        FORMATS[name].render_tools(['{"name":"g"}', tool])
    assert caught.value.pointer == "/tools/1"
