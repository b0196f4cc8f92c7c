from tests.api.conftest import Api, call, model, response, user


async def test_appended_events_get_dense_seqs_and_read_back_as_sent(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, user("hello", id="u1"), model("hi there"))
    assert [each["seq"] for each in answer["appended"]] == [1, 2]
    assert answer["head_seq"] == 2
    page = (await api.get(f"{path}/events")).json()
    assert page["data"][0]["content"] == {"role": "user", "parts": [{"text": "hello"}]}
    assert [each["status"] for each in page["data"]] == ["live", "live"]
    assert not page["has_more"]


async def test_calls_and_responses_are_taken(api: Api) -> None:
    path = await api.session()
    answer = await api.append(path, user("x"), call("f", "c1"), response("f", "c1"))
    assert answer["head_seq"] == 3
