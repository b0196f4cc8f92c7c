from typing import Any

import pytest

from tests.api.conftest import Api, call, model, response, user


async def compiled(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    answer = await api.post(f"{path}/compile", fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_compile_answers_the_provider_s_own_body(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hello"), model("hi"), user("and now?"))
    body = await compiled(api, path, agent="agent")
    assert body["request"]["contents"] == [
        {"role": "user", "parts": [{"text": "hello"}]},
        {"role": "model", "parts": [{"text": "hi"}]},
        {"role": "user", "parts": [{"text": "and now?"}]},
    ]
    assert (body["head_seq"], body["compiled_seq"], body["prefix_count"]) == (3, 3, 2)


@pytest.mark.parametrize("name", ["gemini", "openai_chat", "anthropic", "native"])
async def test_what_is_compiled_is_valid_for_its_provider(api: Api, name: str) -> None:
    path = await api.session()
    await api.append(path, user("x"), call("f", "c1"), response("f", "c1"), user("y"))
    request = (await compiled(api, path, agent="agent", format=name))["request"]
    answer = await api.post("/v1/validate", {"format": name, "request": request})
    assert answer.json() == {"valid": True, "violations": []}
