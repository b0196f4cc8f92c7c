"""What a query looks for."""

import pytest

from app.core.recall import MAX_TERMS, least_matches, terms_of


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("order 58-1140", ("order", "58-1140")),
        ("Where is it?", ("Where", "is", "it")),
        ('say "held at the hub", please', ("say", "held at the hub", "please")),
        ("twice twice", ("twice",)),
        ("订单", ("订单",)),
        ("订", ("订",)),
        ("订单被扣", ("订单", "单被", "被扣")),
        ("订单 58-1140 被扣", ("订单", "58-1140", "被扣")),
        ("API密钥", ("API", "密钥")),
        ("「订单」。", ("订单",)),
        ("주문 번호", ("주문", "번호")),
        ("app/core/recall.py", ("app/core/recall.py",)),
        ("", ()),
        ("  ?! ", ()),
        ('""', ()),
    ],
)
def test_a_query_names_its_words(query: str, terms: tuple[str, ...]) -> None:
    assert terms_of(query) == terms


def test_a_long_query_names_no_more_than_can_be_looked_for() -> None:
    assert len(terms_of(" ".join(map(str, range(1_000))))) == MAX_TERMS


@pytest.mark.parametrize(("count", "least"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_half_of_the_words_must_be_there(count: int, least: int) -> None:
    assert least_matches(count) == least
