"""The model that the server is configured to summarize with, by its kind."""

from collections.abc import Callable, Mapping
from typing import Final

import httpx

from app.ports import SummaryProvider
from app.providers import anthropic, google, openai
from app.providers.anthropic import AnthropicProvider
from app.providers.google import GeminiProvider
from app.providers.json_api import JsonApi
from app.providers.openai import OpenAiProvider
from app.providers.openai_responses import OpenAiResponsesProvider
from app.providers.retry import Retries

#: By kind: where the provider is when no URL is set.
DEFAULT_URLS: Final[Mapping[str, str]] = {
    "openai": openai.DEFAULT_URL,
    "openai_responses": openai.DEFAULT_URL,
    "anthropic": anthropic.DEFAULT_URL,
    "gemini": google.DEFAULT_URL,
}


def summary_providers(
    client: httpx.AsyncClient,
    *,
    kind: str,
    url: str | None,
    model: str | None,
    api_key: str | None,
    timeout_s: float,
    retries: Retries | None = None,
) -> Mapping[str, SummaryProvider]:
    """Return the providers that there are, by kind: one, or none for ``extractive`` and ``none``.

    A policy that asks for another kind gets none: the key is of this provider and of no other.
    """
    if kind not in DEFAULT_URLS:
        return {}
    api = JsonApi(
        client=client,
        base_url=(url or DEFAULT_URLS[kind]).rstrip("/"),
        headers=_HEADERS[kind](api_key),
        timeout_s=timeout_s,
        retries=retries or Retries(),
    )
    return {kind: _PROVIDERS[kind](api, model=model)}


_HEADERS: Final = {
    "openai": openai.headers,
    "openai_responses": openai.headers,
    "anthropic": anthropic.headers,
    "gemini": google.headers,
}
_PROVIDERS: Final[Mapping[str, Callable[..., SummaryProvider]]] = {
    "openai": OpenAiProvider,
    "openai_responses": OpenAiResponsesProvider,
    "anthropic": AnthropicProvider,
    "gemini": GeminiProvider,
}
