"""Summaries from OpenAI's Responses API; nothing is kept there.

Checked against https://platform.openai.com/docs/api-reference/responses, 2025-10.
"""

from collections.abc import Mapping
from typing import Any

from app.core.errors import ProviderRejectedError, ProviderUnavailableError
from app.ports import SummaryAnswer, SummaryPrompt
from app.providers.json_api import JsonApi, answer_text, member, number
from app.providers.openai import chosen_model


class OpenAiResponsesProvider:
    """A :class:`app.ports.SummaryProvider`."""

    def __init__(self, api: JsonApi, *, model: str | None) -> None:
        self._api = api
        self._model = model

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once."""
        body: dict[str, object] = {
            "model": chosen_model(prompt, self._model),
            "instructions": prompt.system,
            "input": prompt.user,
            "max_output_tokens": prompt.max_output_tokens,
            "store": False,
        }
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        answer = await self._api.post("/responses", body, timeout_s=prompt.timeout_s)
        return _read(answer, str(body["model"]))


def _read(answer: Mapping[str, Any], model: str) -> SummaryAnswer:
    items = answer.get("output")
    if not isinstance(items, list):
        raise ProviderRejectedError("the answer has no output")
    if answer.get("status") == "failed":
        raise ProviderUnavailableError("the response failed")
    contents = [part for item in items for part in _content(item)]
    refused = any(member(part, "type") == "refusal" for part in contents)
    return SummaryAnswer(
        text=answer_text(contents),
        finish_reason="filtered" if refused else _finish_reason(answer),
        input_tokens=number(answer, "usage", "input_tokens"),
        output_tokens=number(answer, "usage", "output_tokens"),
        model=str(answer.get("model") or model),
    )


def _content(item: object) -> list[Any]:
    content = member(item, "content") if member(item, "type") == "message" else None
    return content if isinstance(content, list) else []


def _finish_reason(answer: Mapping[str, Any]) -> str:
    reason = member(answer, "incomplete_details", "reason")
    if reason == "content_filter":
        return "filtered"
    # Whatever else left it incomplete, there is only a part of it.
    return "length" if reason or answer.get("status") == "incomplete" else "stop"
