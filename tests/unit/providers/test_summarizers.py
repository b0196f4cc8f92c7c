"""Each adapter against a server that speaks its dialect, and breaks it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from app.core.errors import (
    ProviderError,
    ProviderRateLimitedError,
    ProviderRejectedError,
    ProviderTimeoutError,
    ProviderUnavailableError,
)
from app.ports import SummaryPrompt, SummaryProvider
from app.providers.json_api import new_client, number
from app.providers.retry import Retries
from app.providers.summarizers import summary_providers
from tests.fakes.model_server import (
    FILTERED,
    GARBAGE,
    HALF,
    HANGS,
    TRUNCATED,
    ModelServer,
    Step,
    fails,
    says,
)

KINDS = ("openai", "openai_responses", "anthropic", "gemini")
PROMPT = SummaryPrompt(system="keep the record", user="the transcript", max_output_tokens=300)


async def _no_wait(_: float) -> None:
    pass


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(server: ModelServer, kind: str) -> AsyncIterator[SummaryProvider]:
    async with new_client() as client:
        yield summary_providers(
            client,
            kind=kind,
            url=server.url(kind) + "/",
            model="model-1",
            api_key="key-1234",
            timeout_s=5.0,
            retries=Retries(attempts=2, sleep=_no_wait),
        )[kind]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_answer_decides_where_a_conversation_is_sent(
    server: ModelServer, provider: SummaryProvider, kind: str, status: int
) -> None:
    with ModelServer() as elsewhere:
        elsewhere.script(says("the record"))
        location = elsewhere.url(kind) + "/chat/completions"
        server.script(Step(status=status, headers=(("Location", location),), body=b"{}"))

        with pytest.raises(ProviderRejectedError):
            await provider.complete(PROMPT)

        assert elsewhere.requests == []


async def test_no_proxy_of_the_environment_is_told_a_conversation(
    server: ModelServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer() as elsewhere:
        proxy = elsewhere.url(kind).removesuffix("/v1").removesuffix("/v1beta")
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        server.script(says("the record"))
        async with new_client() as client:
            asked = summary_providers(
                client,
                kind=kind,
                url=server.url(kind),
                model="model-1",
                api_key="key-1234",
                timeout_s=5.0,
            )[kind]
            assert (await asked.complete(PROMPT)).text == "the record"

        assert elsewhere.requests == []


async def test_an_answer_comes_with_its_cost(
    server: ModelServer, provider: SummaryProvider
) -> None:
    server.script(says("the record"))

    answer = await provider.complete(PROMPT)

    assert (answer.text, answer.finish_reason) == ("the record", "stop")
    assert (answer.input_tokens, answer.output_tokens) == (100, 20)
    assert answer.model == "model-1"


@pytest.mark.parametrize("told", [-5, True, 1.5, "100", None, [100]])
def test_what_is_no_count_costs_nothing(told: object) -> None:
    assert number({"usage": {"input_tokens": told}}, "usage", "input_tokens") == 0


async def test_the_request_holds_the_prompt_the_limit_and_the_key(
    server: ModelServer, provider: SummaryProvider
) -> None:
    server.script(says("the record"))

    await provider.complete(PROMPT)

    asked = server.requests[0]
    assert asked.texts == (PROMPT.system, PROMPT.user)
    assert "key-1234" in " ".join(asked.headers.values())
    assert "key-1234" not in asked.path
    assert "300" in str(asked.body)
    assert "temperature" not in str(asked.body)


async def test_the_policys_model_and_temperature_are_asked_for(
    server: ModelServer, provider: SummaryProvider
) -> None:
    server.script(says("the record"))

    await provider.complete(
        SummaryPrompt(system="s", user="u", max_output_tokens=9, model="model-2", temperature=0.25)
    )

    asked = server.requests[0]
    assert "model-2" in asked.path + str(asked.body)
    assert "0.25" in str(asked.body)


@pytest.mark.parametrize(("step", "reason"), [(TRUNCATED, "length"), (FILTERED, "filtered")])
async def test_an_answer_that_did_not_end_well_says_so(
    server: ModelServer, provider: SummaryProvider, step: Step, reason: str
) -> None:
    server.script(step)

    assert (await provider.complete(PROMPT)).finish_reason == reason


@pytest.mark.parametrize(
    ("step", "error", "requests"),
    [
        (fails(500), ProviderUnavailableError, 2),
        (fails(529), ProviderUnavailableError, 2),
        (fails(429, retry_after="0"), ProviderRateLimitedError, 2),
        (fails(429, retry_after="900"), ProviderRateLimitedError, 1),
        (fails(400), ProviderRejectedError, 1),
        (fails(401), ProviderRejectedError, 1),
        (GARBAGE, ProviderRejectedError, 1),
        (Step(body=b'{"error": {"message": "busy"}}'), ProviderRejectedError, 1),
        (Step(body=b"[]"), ProviderRejectedError, 1),
        (Step(body=b"{}"), ProviderRejectedError, 1),
        (HALF, ProviderUnavailableError, 2),
        (
            Step(status=307, headers=(("Location", "http://127.0.0.1:1/"),)),
            ProviderRejectedError,
            1,
        ),
    ],
)
async def test_what_goes_wrong_has_a_type_and_is_tried_again_where_that_may_help(
    server: ModelServer,
    provider: SummaryProvider,
    step: Step,
    error: type[ProviderError],
    requests: int,
) -> None:
    server.script(step)

    with pytest.raises(error) as caught:
        await provider.complete(PROMPT)
    assert len(server.requests) == requests
    assert "transcript" not in str(caught.value)


async def test_a_server_that_recovers_is_answered_by(
    server: ModelServer, provider: SummaryProvider
) -> None:
    server.script(fails(503), says("the record"))

    assert (await provider.complete(PROMPT)).text == "the record"


async def test_a_server_that_never_answers_is_given_up(
    server: ModelServer, provider: SummaryProvider
) -> None:
    server.script(HANGS)

    with pytest.raises(ProviderTimeoutError):
        await provider.complete(
            SummaryPrompt(system="s", user="u", max_output_tokens=9, timeout_s=0.1)
        )


async def test_a_server_that_is_down_is_unavailable(kind: str) -> None:
    async with new_client() as client:
        providers = summary_providers(
            client,
            kind=kind,
            # Port 1 is nobody's.
            url="http://127.0.0.1:1/v1",
            model="m",
            api_key=None,
            timeout_s=5.0,
            retries=Retries(attempts=2, sleep=_no_wait),
        )
        with pytest.raises(ProviderUnavailableError):
            await providers[kind].complete(PROMPT)


async def test_a_model_name_stays_one_segment_of_the_path(server: ModelServer) -> None:
    server.script(says("x"))
    async with new_client() as client:
        providers = summary_providers(
            client, kind="gemini", url=server.url("gemini"), model=None, api_key="k", timeout_s=5
        )
        await providers["gemini"].complete(
            SummaryPrompt(system="s", user="u", max_output_tokens=9, model="../../admin?x=1#")
        )

    assert server.requests[0].path == "/v1beta/models/..%2F..%2Fadmin%3Fx%3D1%23:generateContent"


async def test_without_a_model_there_is_no_request(server: ModelServer) -> None:
    async with new_client() as client:
        providers = summary_providers(
            client, kind="openai", url=server.url("openai"), model=None, api_key="k", timeout_s=5
        )
        with pytest.raises(ProviderRejectedError):
            await providers["openai"].complete(PROMPT)

    assert server.requests == []


@pytest.mark.parametrize("kind_without_model", ["extractive", "none"])
async def test_kinds_without_a_model_have_no_provider(kind_without_model: str) -> None:
    async with new_client() as client:
        assert (
            summary_providers(
                client,
                kind=kind_without_model,
                url=None,
                model=None,
                api_key=None,
                timeout_s=5,
            )
            == {}
        )
