import pytest

from app.core.canonical import canonical_json
from app.core.errors import InvalidInputError
from app.formats import FORMATS
from app.formats.tool_names import check_tool_names


def tool(name: str) -> str:
    return canonical_json({"name": name, "description": "", "parameters": {"type": "object"}})


@pytest.mark.parametrize("format_name", sorted(set(FORMATS) - {"native"}))
@pytest.mark.parametrize("name", ["", "two words", "x" * 200, "ä"])
def test_a_name_that_the_provider_refuses_is_named(format_name: str, name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, [tool("find"), tool(name)], pointer="/tools")
    assert raised.value.pointer == "/tools/1/name"


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_two_tools_of_one_name_are_refused(format_name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_tool_names(format_name, [tool("find"), tool("get"), tool("find")], pointer="/tools")
    assert raised.value.pointer == "/tools/2/name"


@pytest.mark.parametrize("format_name", sorted(FORMATS))
def test_good_names_pass(format_name: str) -> None:
    check_tool_names(format_name, [tool("find_it"), tool("get-2")], pointer="/tools")
