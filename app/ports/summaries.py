"""Who writes summaries, and what that may cost."""

from dataclasses import dataclass
from datetime import date
from typing import Protocol

from app.ports.base import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    """What a model is asked for a summary."""

    #: Our instructions; never holds text of the conversation.
    system: str
    #: The conversation, quoted.
    user: str
    #: None: the server's.
    model: str | None = None
    #: None: the provider's.
    temperature: float | None = None
    max_output_tokens: int
    #: Of the whole request, retries included. None: the server's.
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAnswer:
    """What the model answered."""

    text: str
    #: ``stop``, ``length`` (cut off), ``filtered``, or as the provider put it.
    finish_reason: str
    input_tokens: int
    output_tokens: int
    model: str


class SummaryProvider(Protocol):
    """A model that writes summaries."""

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once; the adapter may send the request a bounded number of times.

        Raises:
            ProviderError: there is no answer.
        """


class SummarySpend(Protocol):
    """What models have read and written for a tenant's summaries, by day in UTC."""

    async def reserve(
        self, connection: Connection, tenant_id: str, *, tokens: int, most_tokens: int
    ) -> date | None:
        """Count tokens that are about to be spent, and return the day that they count for.

        None, and nothing counted, where they would pass the most that a day may have.
        """

    async def correct(
        self, connection: Connection, tenant_id: str, day: date, *, tokens: int
    ) -> None:
        """Add what was counted too little to a day; negative for too much."""

    async def spent(self, connection: Connection, tenant_id: str) -> int:
        """Return what is counted for today."""

    async def forget(self, connection: Connection, *, older_than_days: int, limit: int) -> int:
        """Forget days that are so long past, oldest first; return how many."""
