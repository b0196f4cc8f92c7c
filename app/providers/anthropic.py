"""Summaries from Anthropic's Messages API.

Checked against https://docs.anthropic.com/en/api/messages, 2025-10.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.core.errors import ProviderRejectedError
from app.ports import SummaryAnswer, SummaryPrompt
from app.providers.json_api import JsonApi, answer_text, member, number
from app.providers.openai import chosen_model

DEFAULT_URL: Final = "https://api.anthropic.com/v1"
API_VERSION: Final = "2023-06-01"

FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}


def headers(api_key: str | None) -> Mapping[str, str]:
    """Return the headers that say who is asking."""
    key = {"x-api-key": api_key} if api_key else {}
    return {"anthropic-version": API_VERSION, **key}


class AnthropicProvider:
    """A :class:`app.ports.SummaryProvider`."""

    def __init__(self, api: JsonApi, *, model: str | None) -> None:
        self._api = api
        self._model = model

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once."""
        body: dict[str, object] = {
            "model": chosen_model(prompt, self._model),
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
            "max_tokens": prompt.max_output_tokens,
        }
        if prompt.temperature is not None:
            # Anthropic's scale ends at 1.
            body["temperature"] = min(1.0, prompt.temperature)
        answer = await self._api.post("/messages", body, timeout_s=prompt.timeout_s)
        return _read(answer, str(body["model"]))


def _read(answer: Mapping[str, Any], model: str) -> SummaryAnswer:
    blocks = answer.get("content")
    if not isinstance(blocks, list):
        raise ProviderRejectedError("the answer has no content")
    reason = str(answer.get("stop_reason") or "stop")
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return SummaryAnswer(
        text=answer_text([block for block in blocks if member(block, "type") == "text"]),
        finish_reason=FINISH_REASONS.get(reason, reason),
        input_tokens=sum(number(answer, "usage", key) for key in ("input_tokens", *cached)),
        output_tokens=number(answer, "usage", "output_tokens"),
        model=str(answer.get("model") or model),
    )
