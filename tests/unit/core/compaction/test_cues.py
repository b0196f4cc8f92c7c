"""Which kind of statement it is."""

import pytest

from app.core.compaction.cues import class_of, is_strong_rule
from app.core.compaction.ledger import LedgerClass


@pytest.mark.parametrize(
    "text",
    [
        "From now on, round all sums to cents.",
        "Going forward, name the branch in the title.",
        "Use the staging host only.",
        "Reply in Danish.",
        "Stick to the second draft.",
        "Stop adding footnotes.",
        "Restrict yourself to the two open tickets.",
        "Ask me first when a customer wants a refund.",
        "Keep every answer under a page.",
        "Could you please always name the source?",
        "Would you mind never sending mail at night?",
        "Will you please not call them on Friday?",
        "从现在起只写英文注释。",
        "以后请先给出结论。",
        "Ab sofort nur noch kurze Absätze.",
        "Désormais, réponds en une phrase.",
        "A partir de ahora, escribe sin abreviaturas.",
    ],
)
def test_an_order_for_all_that_follows_is_a_rule(text: str) -> None:
    assert class_of(text) is LedgerClass.RULE
    assert is_strong_rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "Reply to Anna that the parcel is late.",
        "Answer in the morning.",
        "Stop the server.",
        "Keep going.",
        "Could you check whether it was sent?",
        "Can you book a table?",
        "It started after the upgrade.",
    ],
)
def test_what_is_asked_or_told_once_is_none(text: str) -> None:
    assert class_of(text) is not LedgerClass.RULE
