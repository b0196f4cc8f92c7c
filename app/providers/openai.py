"""Summaries from any server that speaks ``/chat/completions``.

Checked against https://platform.openai.com/docs/api-reference/chat, 2025-10.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from app.core.errors import ProviderRejectedError
from app.ports import SummaryAnswer, SummaryPrompt
from app.providers.json_api import JsonApi, answer_text, member, number

DEFAULT_URL: Final = "https://api.openai.com/v1"

FINISH_REASONS: Final[Mapping[str, str]] = {"content_filter": "filtered"}


def headers(api_key: str | None) -> Mapping[str, str]:
    """Return the headers that say who is asking; a local server often needs no key."""
    return {"authorization": f"Bearer {api_key}"} if api_key else {}


class OpenAiProvider:
    """A :class:`app.ports.SummaryProvider`."""

    def __init__(self, api: JsonApi, *, model: str | None) -> None:
        self._api = api
        self._model = model
        # OpenAI's own reasoning models refuse the old name, other servers do not know the new one.
        is_openai = urlsplit(api.base_url).hostname == urlsplit(DEFAULT_URL).hostname
        self._limit_key = "max_completion_tokens" if is_openai else "max_tokens"

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once."""
        body: dict[str, object] = {
            "model": chosen_model(prompt, self._model),
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            self._limit_key: prompt.max_output_tokens,
        }
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        answer = await self._api.post("/chat/completions", body, timeout_s=prompt.timeout_s)
        return _read(answer, str(body["model"]))


def chosen_model(prompt: SummaryPrompt, default: str | None) -> str:
    """Return the policy's model, else the server's.

    Raises:
        ProviderRejectedError: there is neither.
    """
    model = prompt.model or default
    if model is None:
        raise ProviderRejectedError("no model is named")
    return model


def _read(answer: Mapping[str, Any], model: str) -> SummaryAnswer:
    choice = member(answer, "choices", 0)
    if choice is None:
        raise ProviderRejectedError("the answer has no choices")
    refusal = member(choice, "message", "refusal")
    reason = str(member(choice, "finish_reason") or "stop")
    return SummaryAnswer(
        text=answer_text(member(choice, "message", "content")),
        finish_reason="filtered" if refusal else FINISH_REASONS.get(reason, reason),
        input_tokens=number(answer, "usage", "prompt_tokens"),
        output_tokens=number(answer, "usage", "completion_tokens"),
        model=str(answer.get("model") or model),
    )
