"""What holds for every provider's format alike."""

import pytest

from app.core.contents import FileData, InlineData, Part, Text
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
