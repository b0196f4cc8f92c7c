"""How many tokens a section may take, by what it stands for."""

from dataclasses import dataclass
from typing import Final

#: What a section may take by default: this part of what it covers, and never more than so many
#: tokens. A section that grew with the history would be no summary.
COVERED_SHARE: Final = 0.25
MIN_SECTION_TOKENS: Final = 120
MAX_SECTION_TOKENS: Final = 4_000
#: Rules and what else the user said with weight may take more, up to this part of what is covered.
MAX_COVERED_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many tokens a section may take."""

    #: What it aims at.
    tokens: int
    #: What it may never exceed, for rules.
    most_tokens: int


def section_budget(
    covered_tokens: int, seed_tokens: int = 0, max_output_tokens: int | None = None
) -> Budget:
    """Return the budget of a section.

    Args:
        covered_tokens: of the events that it is made from.
        seed_tokens: of the previous section, which it supersedes and carries.
        max_output_tokens: as the policy has it; then that is the budget.
    """
    if max_output_tokens is not None:
        return Budget(tokens=max_output_tokens, most_tokens=max_output_tokens)
    share = max(MIN_SECTION_TOKENS, int(covered_tokens * COVERED_SHARE))
    tokens = min(MAX_SECTION_TOKENS, seed_tokens + share)
    most = int(covered_tokens * MAX_COVERED_SHARE) + seed_tokens
    return Budget(tokens=tokens, most_tokens=max(tokens, min(MAX_SECTION_TOKENS, most)))
