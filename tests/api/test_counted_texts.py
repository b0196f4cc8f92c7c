"""Every text that a caller or a model wrote is counted by the tokenizer, wherever it comes from: a
request is never larger than it is said to be, and never than its budget."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from app.providers.tokenizer import Tokenizer
from tests.api.conftest import Api, call, model, response, user
from tests.images import png

#: 20,000 characters and some 10,000 tokens: twice what a fourth of its bytes is.
NUMBERS: Final = " ".join(str(100 + n * 7_919 % 900) for n in range(5_000))
COUNT: Final = Tokenizer().count

#: Makes a log, and returns its path and what is compiled of it.
Prepare = Callable[[Api], Awaitable[tuple[str, dict[str, Any]]]]


async def elided_result(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    said = response("read", "c1", {"r": NUMBERS})
    await api.append(path, user("q"), call("read", "c1"), said, model("ok"), user("n"))
    answer = await api.post(f"{path}/elisions", {"seqs": [3], "keep_chars": 15_000})
    assert answer.status_code == 201, answer.text
    return path, {}


async def elided_text(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    await api.append(path, user(NUMBERS), model("ok"), user("n"))
    answer = await api.post(f"{path}/elisions", {"seqs": [1], "keep_chars": 15_000})
    assert answer.status_code == 201, answer.text
    return path, {}


async def elided_result_of_another(api: Api) -> tuple[str, dict[str, Any]]:
    path, _ = await elided_result(api)
    return path, {"agent": "somebody"}


async def dynamic_instruction(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    await api.append(path, user("q"))
    return path, {"instruction": {"static": "s", "dynamic": NUMBERS}}


async def state_in_the_instruction(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session(state={"told": NUMBERS})
    await api.append(path, user("q"))
    return path, {"instruction": {"static": "s", "dynamic": "{told}"}}


async def user_content(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    await api.append(path, user("hello", isolation_scope="T"))
    return path, {"isolation_scope": "T", "user_content": NUMBERS}


async def opening_call(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    task = call("task", "fc1", {"numbers": [int(number) for number in NUMBERS.split()]}, "root")
    await api.append(path, user("q"), task, model("hi", isolation_scope="fc1"))
    return path, {"isolation_scope": "fc1"}


async def transcription(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    heard = {"author": "user", "input_transcription": {"text": NUMBERS, "finished": True}}
    await api.append(path, heard, model("ok"), user("n"))
    return path, {}


async def retold_for_adk(api: Api) -> tuple[str, dict[str, Any]]:
    path = await api.session()
    numbers = [int(number) for number in NUMBERS.split()]
    said = response("read", "c1", {"r": numbers}, "other")
    await api.append(path, user("q"), call("read", "c1", author="other"), said, user("n"))
    return path, {"preset": "adk", "format": "gemini"}


PREPARED: Final[tuple[Prepare, ...]] = (
    elided_result,
    elided_text,
    elided_result_of_another,
    dynamic_instruction,
    state_in_the_instruction,
    user_content,
    opening_call,
    transcription,
    retold_for_adk,
)


def texts(value: Any) -> list[str]:
    """Return every text that a request holds."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [text for item in value for text in texts(item)] if hasattr(value, "__iter__") else []


@pytest.mark.parametrize("prepare", PREPARED, ids=lambda prepare: prepare.__name__)
async def test_a_request_holds_no_more_than_is_said(api: Api, prepare: Prepare) -> None:
    path, options = await prepare(api)
    body = {"agent": "agent", "format": "anthropic", **options}

    answer = await api.post(f"{path}/compile", body)

    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["tokens"]["total"] >= sum(map(COUNT, texts(found["request"]))) > 5_000


@pytest.mark.parametrize("prepare", PREPARED, ids=lambda prepare: prepare.__name__)
@pytest.mark.parametrize("limit", [3_000, 6_000])
async def test_a_request_fits_its_budget_or_is_refused(
    api: Api, prepare: Prepare, limit: int
) -> None:
    path, options = await prepare(api)
    budget = {"max_input_tokens": limit}
    body = {"agent": "agent", "format": "anthropic", **options, "budget": budget}

    answer = await api.post(f"{path}/compile", body)

    if answer.status_code == 422:
        assert answer.json()["code"] == "over_budget"
    else:
        assert sum(map(COUNT, texts(answer.json()["request"]))) <= limit


async def test_media_beside_the_log_count_too(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("q", isolation_scope="T"))
    image = {"inline_data": {"mime_type": "image/png", "data": png(1_000, 1_000)}}
    given = {"isolation_scope": "T", "user_content": {"role": "user", "parts": [image]}}
    static = {"instruction": {"static": {"parts": [{"text": "see"}, image]}}}
    for options in (given, {**given, "user_content": "look", **static}):
        body = {"agent": "agent", "format": "anthropic", **options}
        assert (await api.post(f"{path}/compile", body)).status_code == 200

        answer = await api.post(f"{path}/compile", {**body, "budget": {"max_input_tokens": 500}})

        assert answer.status_code == 422, answer.json()["budget"]
        assert answer.json()["code"] == "over_budget"


@pytest.mark.parametrize("author", ["agent", "other"])
# Names of its own: what other tests report of a model is learnt by its name.
@pytest.mark.parametrize("name", ["", "gpt-5.4-2026-01-01", "claude-sonnet-5-20260101"])
async def test_media_in_a_result_count_once_and_by_the_model_s_rule(
    api: Api, author: str, name: str
) -> None:
    path = await api.session()
    image = {"inline_data": {"mime_type": "image/png", "data": png(64, 64)}}
    said = response("look", "c1", {"x": "y"}, author)
    said["content"]["parts"][0]["function_response"]["parts"] = [image]
    await api.append(path, user("look"), call("look", "c1", author=author), said, user("and?"))
    body = {"agent": "agent", "format": "anthropic", "model": name or None}
    answer = (await api.post(f"{path}/compile", body)).json()

    asked = {
        "format": "anthropic",
        "model": name or None,
        "contents": answer["request"]["messages"],
    }
    counted = (await api.post("/v1/tokens", asked)).json()["tokens"]

    total = answer["tokens"]["total"]
    assert abs(total - counted) <= max(60, counted // 10)
