"""Summaries from the Gemini API.

Checked against https://ai.google.dev/api/generate-content, 2025-10.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from app.core.errors import ProviderRejectedError
from app.ports import SummaryAnswer, SummaryPrompt
from app.providers.json_api import JsonApi, answer_text, member, number
from app.providers.openai import chosen_model

DEFAULT_URL: Final = "https://generativelanguage.googleapis.com/v1beta"

FINISH_REASONS: Final[Mapping[str, str]] = {"STOP": "stop", "MAX_TOKENS": "length"}
_FILTERED: Final = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"}
)


def headers(api_key: str | None) -> Mapping[str, str]:
    """Return the headers that say who is asking; a key in the URL would end in logs."""
    return {"x-goog-api-key": api_key} if api_key else {}


class GeminiProvider:
    """A :class:`app.ports.SummaryProvider`."""

    def __init__(self, api: JsonApi, *, model: str | None) -> None:
        self._api = api
        self._model = model

    async def complete(self, prompt: SummaryPrompt) -> SummaryAnswer:
        """Ask once."""
        model = chosen_model(prompt, self._model)
        generation: dict[str, object] = {"maxOutputTokens": prompt.max_output_tokens}
        if prompt.temperature is not None:
            generation["temperature"] = prompt.temperature
        body = {
            "systemInstruction": {"parts": [{"text": prompt.system}]},
            "contents": [{"role": "user", "parts": [{"text": prompt.user}]}],
            "generationConfig": generation,
        }
        # The name comes from a tenant's policy: it must stay one segment of the path.
        segment = quote(model.removeprefix("models/"), safe="")
        path = f"/models/{segment}:generateContent"
        return _read(await self._api.post(path, body, timeout_s=prompt.timeout_s), model)


def _read(answer: Mapping[str, Any], model: str) -> SummaryAnswer:
    candidate = member(answer, "candidates", 0)
    is_blocked = bool(member(answer, "promptFeedback", "blockReason"))
    if candidate is None and not is_blocked:
        raise ProviderRejectedError("the answer has no candidates")
    parts = member(candidate, "content", "parts")
    parts = parts if isinstance(parts, list) else []
    return SummaryAnswer(
        text=answer_text([part for part in parts if not member(part, "thought")]),
        finish_reason="filtered" if is_blocked else _finish_reason(candidate),
        input_tokens=number(answer, "usageMetadata", "promptTokenCount"),
        output_tokens=number(answer, "usageMetadata", "candidatesTokenCount")
        + number(answer, "usageMetadata", "thoughtsTokenCount"),
        model=str(answer.get("modelVersion") or model),
    )


def _finish_reason(candidate: object) -> str:
    reason = str(member(candidate, "finishReason") or "STOP")
    return "filtered" if reason in _FILTERED else FINISH_REASONS.get(reason, reason.lower())
