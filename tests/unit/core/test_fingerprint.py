import pytest

from app.core.fingerprint import HeadPart, chain_of, head_difference, head_of

PARTS = [("user", '{"text":"a"}'), ("model", '{"text":"b"}'), ("user", '{"text":"c"}')]


def head(**changes: str) -> str:
    fields = {"format_name": "gemini", "model": "m", "tools": "[]", "system": "be brief"}
    return head_of(**(fields | changes))


def chain(parts: list[tuple[str, str]], **changes: str) -> tuple[str, ...]:
    return chain_of(head(**changes), parts)


def test_chain_has_a_link_before_the_first_part_and_after_each() -> None:
    assert len(chain([])) == 1
    assert len(chain(PARTS)) == 4
    assert len(set(chain(PARTS))) == 4
    assert all(len(link) == 64 and int(link, 16) >= 0 for link in chain(PARTS))


def test_equal_beginnings_have_equal_links() -> None:
    other = [*PARTS[:2], ("user", '{"text":"else"}')]

    assert chain(PARTS)[:3] == chain(other)[:3]
    assert chain(PARTS)[3] != chain(other)[3]


def test_what_comes_first_counts_in_every_link_after_it() -> None:
    other = [("user", '{"text":"else"}'), *PARTS[1:]]

    assert not set(chain(PARTS)[1:]) & set(chain(other)[1:])


def test_role_counts() -> None:
    assert chain([("user", "x")])[-1] != chain([("model", "x")])[-1]


def test_text_cannot_pass_for_a_role() -> None:
    assert chain([("user", "x")])[-1] != chain([("use", "rx")])[-1]


def test_order_counts() -> None:
    assert chain(PARTS[:2])[-1] != chain([PARTS[1], PARTS[0]])[-1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model": "other"}, "model"),
        ({"format_name": "anthropic"}, "model"),
        ({"tools": '[{"name":"t"}]'}, "tools"),
        ({"system": "be long"}, "system"),
        ({"system": "be long", "tools": "", "model": ""}, "model"),
        ({"system": "be long", "tools": ""}, "tools"),
        ({}, None),
    ],
)
def test_two_fingerprints_tell_what_of_the_head_differs(
    changes: dict[str, str], what: HeadPart | None
) -> None:
    assert head_difference(chain(PARTS)[-1], chain(PARTS[:1], **changes)[-1]) == what


def test_every_part_of_the_head_counts_in_every_link() -> None:
    for changes in ({"model": "n"}, {"format_name": "x"}, {"tools": "x"}, {"system": "x"}):
        links = zip(chain(PARTS), chain(PARTS, **changes), strict=True)
        assert all(ours[24:] != theirs[24:] for ours, theirs in links)


def test_format_and_model_cannot_run_into_one_another() -> None:
    assert head(format_name="a", model="bc") != head(format_name="ab", model="c")


def test_a_chain_goes_on_from_its_end() -> None:
    before, after = chain(PARTS[:1]), chain(PARTS)

    assert chain_of(before[-1], PARTS[1:]) == after[1:]
    assert chain_of(after[-1], []) == (after[-1],)
