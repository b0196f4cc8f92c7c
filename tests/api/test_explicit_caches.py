"""Gemini's explicit caches over HTTP: a caller that does as it is told, through the life cycle."""

import time
from typing import Any

import pytest
from google.genai import types

from tests.api.conftest import Api, call, model, response, user

MODEL = "gemini-3.1-pro"
SYSTEM = "You help customers of a shop that sells lamps. " * 40
TOOLS = [{"name": "track", "description": "d", "parameters": {"type": "object"}}]
OPTIONS: dict[str, Any] = {
    "agent": "agent",
    "format": "gemini",
    "model": MODEL,
    "system": SYSTEM,
    "tools": TOOLS,
}


class Caller:
    """An agent in front of a provider that keeps caches by name."""

    def __init__(self, api: Api, path: str, **explicit: Any) -> None:
        self.api, self.path = api, path
        self.explicit = explicit
        self.caches: dict[str, dict[str, Any]] = {}
        self.made = 0

    async def compiled(self, **options: Any) -> dict[str, Any]:
        body = {**OPTIONS, "cache": {"explicit": self.explicit}, **options}
        answer = await self.api.post(f"{self.path}/compile", body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def turn(
        self, *, invocation: str, tokens: int = 20_000, reply: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Compile, do what is said of the cache, send, append the reply; return what was said."""
        body = await self.compiled()
        lifecycle: dict[str, Any] = body["cache"]["lifecycle"]
        record = {"fingerprint": lifecycle["fingerprint"]}
        record["contents_count"] = lifecycle["contents_count"]
        name = lifecycle["name"]
        if lifecycle["action"] in ("delete", "replace"):
            del self.caches[name]
        if lifecycle["action"] in ("create", "replace"):
            self.made += 1
            name = f"cachedContents/{self.made}"
            self.caches[name] = body["cache_segment"]
            body["request"]["cached_content"] = name
            lifecycle = {**lifecycle, "expire_time": time.time() + 1800}
        else:
            assert "cache_segment" not in body
        if lifecycle["action"] in ("create", "replace", "use"):
            record |= {key: lifecycle[key] for key in ("invocations_used", "expire_time")}
            record["cache_name"] = name
        await self._check(body["request"])
        said = reply or model("a reply")
        await self.api.append(
            self.path,
            {
                **said,
                "invocation_id": invocation,
                "compiled_seq": body["compiled_seq"],
                "compiled_fingerprint": body["fingerprint"],
                "cache_metadata": record,
                "usage_metadata": {"prompt_token_count": tokens},
            },
        )
        return lifecycle

    async def _check(self, request: dict[str, Any]) -> None:
        """See that what the provider puts together is what would have been sent without a cache."""
        answer = await self.api.post(
            "/v1/validate", {"format": "gemini", "model": MODEL, "request": request}
        )
        assert answer.json() == {"valid": True, "violations": []}
        body = {**OPTIONS, "cache": {}}
        whole = (await self.api.post(f"{self.path}/compile", body)).json()["request"]
        name = request.pop("cached_content", None)
        if name is None:
            assert request == whole
            return
        assert not {"system_instruction", "tools"} & request.keys()
        segment = dict(self.caches[name])
        types.CreateCachedContentConfig.model_validate(segment)
        segment.pop("ttl")
        joined = [*segment.pop("contents", []), *request["contents"]]
        assert {**segment, "contents": joined} == whole


async def talk(api: Api, words: int = 400) -> str:
    path = await api.session()
    await api.append(path, user("Where is it? " * words, invocation_id="i1"))
    return path


async def test_a_cache_is_made_with_the_second_request_and_used_from_then_on(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    first = await caller.turn(invocation="i1", reply=call("track", "c1"))
    assert (first["action"], first["reason"], first["contents_count"]) == (
        "none",
        "first_request",
        0,
    )
    await api.append(path, {**response("track", "c1"), "invocation_id": "i1"})
    second = await caller.turn(invocation="i1")
    assert (second["action"], second["contents_count"]) == ("create", 2)
    assert caller.caches["cachedContents/1"]["ttl"] == "1800s"
    await api.append(path, user("and now?", invocation_id="i2"))
    third = await caller.turn(invocation="i2")
    assert (third["action"], third["name"]) == ("use", "cachedContents/1")
    assert (third["contents_count"], third["invocations_used"]) == (2, 2)
    again = (await caller.compiled())["cache"]["lifecycle"]
    assert (again["action"], again["invocations_used"]) == ("use", 2)


async def test_a_cache_that_served_its_invocations_is_replaced_by_a_longer_one(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path, cache_intervals=2, ttl_seconds=60)
    said = []
    for number in range(1, 6):
        said.append(await caller.turn(invocation=f"i{number}"))
        await api.append(path, user("more", invocation_id=f"i{number + 1}"))
    assert [(each["action"], each["contents_count"]) for each in said] == [
        ("none", 0),
        ("create", 2),
        ("use", 2),
        ("replace", 6),
        ("use", 6),
    ]
    assert said[3]["reason"] == "used_up"
    assert said[3]["name"] == "cachedContents/1"
    assert list(caller.caches) == ["cachedContents/2"]
    assert caller.caches["cachedContents/2"]["ttl"] == "60s"


async def test_a_fold_ends_the_cache_and_the_next_request_but_one_has_another(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    for number in (1, 2, 3):
        await caller.turn(invocation=f"i{number}")
        await api.append(path, user("more " * 900, invocation_id=f"i{number + 1}"))
    fold = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "The user asked where it is."}
    assert (await api.post(f"{path}/summaries", fold)).status_code == 201
    ended = await caller.turn(invocation="i4")
    assert (ended["action"], ended["reason"]) == ("delete", "prefix_changed")
    assert caller.caches == {}
    await api.append(path, user("more " * 900, invocation_id="i5"))
    assert (await caller.turn(invocation="i5"))["action"] == "create"


async def test_the_record_is_found_behind_a_fold(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    for number in (1, 2):
        await caller.turn(invocation=f"i{number}")
        await api.append(path, user("more", invocation_id=f"i{number + 1}"))
    fold = {"covers": {"from_seq": 1, "to_seq": 5}, "content": "All of it."}
    assert (await api.post(f"{path}/summaries", fold)).status_code == 201
    live, whole = await caller.compiled(), await caller.compiled(explain=True)
    for body in (live, whole):
        lifecycle = body["cache"]["lifecycle"]
        assert (lifecycle["action"], lifecycle["name"]) == ("delete", "cachedContents/1")
    copy = {"at_seq": await api.head_seq(path), "new_id": f"{path.rpartition('/')[2]}-copy"}
    assert (await api.post(f"{path}/fork", copy)).status_code == 201
    caller.path = f"{path}-copy"
    assert (await caller.compiled())["cache"]["lifecycle"] == live["cache"]["lifecycle"]


async def test_an_earlier_position_says_what_was_known_then(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    await caller.turn(invocation="i1")
    then = await caller.compiled()
    await api.append(path, user("more", invocation_id="i2"))
    await caller.turn(invocation="i2")
    again = await caller.compiled(as_of_seq=then["head_seq"])
    assert again["cache"]["lifecycle"] == then["cache"]["lifecycle"]


async def test_an_expired_cache_is_replaced_and_the_inputs_say_so_again(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    await caller.turn(invocation="i1")
    await api.append(path, user("more", invocation_id="i2"))
    standing = (await caller.compiled())["cache"]["lifecycle"]
    for expire_time, expected in ((time.time() - 1, "replace"), (time.time() + 60, "use")):
        record = {key: standing[key] for key in ("fingerprint", "contents_count")}
        record |= {"cache_name": "cachedContents/x", "invocations_used": 1}
        reply = model("b", cache_metadata={**record, "expire_time": expire_time})
        await api.append(path, {**reply, "usage_metadata": {"promptTokenCount": 20_000}})
        await api.append(path, user("and?"))
        body = await caller.compiled()
        assert body["cache"]["lifecycle"]["action"] == expected
        again = await caller.compiled(inputs=body["inputs"]["digest"])
        assert again["cache"]["lifecycle"] == body["cache"]["lifecycle"]


@pytest.mark.parametrize(
    ("words", "tokens", "explicit", "reason"),
    [
        (400, 20_000, {"min_tokens": 20_001}, "below_min_tokens"),
        (400, 4_000, {}, "below_model_minimum"),
        (400, None, {}, "no_token_count"),
    ],
)
async def test_what_is_too_small_is_not_cached(
    api: Api, words: int, tokens: int | None, explicit: dict[str, int], reason: str
) -> None:
    path = await talk(api, words)
    caller = Caller(api, path, **explicit)
    await caller.turn(invocation="i1", tokens=tokens or 0)
    if tokens is None:
        body = await caller.compiled()
        record = {key: body["cache"]["lifecycle"][key] for key in ("fingerprint", "contents_count")}
        await api.append(path, model("b", cache_metadata=record, author="agent", branch="x"))
        caller_of_branch = await caller.compiled(branch="x")
        assert caller_of_branch["cache"]["lifecycle"]["reason"] == reason
        return
    await api.append(path, user("more", invocation_id="i2"))
    said = await caller.turn(invocation="i2")
    assert (said["action"], said["reason"]) == ("none", reason)
    # What stands grows all the same: the next request is held against the longer prefix.
    assert said["contents_count"] == 2


async def test_two_branches_of_an_agent_keep_caches_of_their_own(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    for number in (1, 2):
        await caller.turn(invocation=f"i{number}")
        await api.append(path, user("more", invocation_id=f"i{number + 1}"))
    other = (await caller.compiled(branch="root.other"))["cache"]["lifecycle"]
    assert (other["action"], other["reason"]) == ("none", "first_request")
    assert (await caller.compiled())["cache"]["lifecycle"]["action"] == "use"


async def test_a_report_expects_what_the_cache_holds(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    for number in (1, 2):
        await caller.turn(invocation=f"i{number}")
        await api.append(path, user("more", invocation_id=f"i{number + 1}"))
    body = await caller.compiled()
    segment = caller.caches["cachedContents/1"]
    assert body["request"]["contents"][0]["role"] == "user"
    usage = {"prompt_token_count": 20_000, "cached_content_token_count": 0}
    report = {"fingerprint": body["fingerprint"], "usage": usage}
    answer = (await api.post(f"{path}/usage", report)).json()
    assert 0 < answer["expected_cached_tokens"] < body["tokens"]["total"]
    assert answer["verdict"] == "prefix_changed"
    assert len(segment["contents"]) == 2


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"format": "anthropic"}, "/cache/explicit"),
        ({"model": None}, "/model"),
        ({"model": "claude-opus-5"}, "/cache/explicit"),
        ({"model": "projects/p/endpoints/7"}, "/cache/explicit/ttl_seconds"),
        ({"cache": {"explicit": {"ttl_seconds": 0}}}, "/cache/explicit/ttl_seconds"),
        ({"cache": {"explicit": {"cache_intervals": 101}}}, "/cache/explicit/cache_intervals"),
        ({"cache": {"explicit": {"name": "x"}}}, "/cache/explicit/name"),
    ],
)
async def test_what_cannot_be_cached_is_refused_by_name(
    api: Api, fields: dict[str, Any], pointer: str
) -> None:
    path = await talk(api)
    answer = await api.post(f"{path}/compile", {**OPTIONS, "cache": {"explicit": {}}, **fields})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_model_that_no_rule_knows_has_the_terms_that_the_caller_says(api: Api) -> None:
    path = await talk(api, 5)
    terms = {"ttl_seconds": 60, "cache_intervals": 3}
    body = await Caller(api, path, **terms).compiled(model="projects/p/endpoints/7")
    assert body["cache"]["lifecycle"]["reason"] == "first_request"


async def test_a_request_is_split_by_its_base_or_by_its_cache(api: Api) -> None:
    path = await talk(api)
    fields = {**OPTIONS, "cache": {"explicit": {}}, "base_fingerprint": "x"}
    answer = await api.post(f"{path}/compile", fields)
    assert answer.status_code == 422
    assert "base_fingerprint" in answer.text


async def test_without_being_asked_for_nothing_is_said(api: Api) -> None:
    path = await talk(api)
    body = (await api.post(f"{path}/compile", OPTIONS)).json()
    assert body["cache"]["lifecycle"] is None
    assert "cache_segment" not in body


async def test_events_that_are_stored_nowhere_have_a_life_cycle_too(api: Api) -> None:
    path = await talk(api)
    caller = Caller(api, path)
    for number in (1, 2):
        await caller.turn(invocation=f"i{number}")
        await api.append(path, user("more", invocation_id=f"i{number + 1}"))
    stored = await caller.compiled()
    events = (await api.get(f"{path}/events")).json()["data"]
    drop = ("seq", "status", "masked_by", "tokens")
    sent = [{key: value for key, value in each.items() if key not in drop} for each in events]
    body = {**OPTIONS, "cache": {"explicit": {}}, "events": sent}
    answer = await api.post("/v1/compile", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["cache"]["lifecycle"] == stored["cache"]["lifecycle"]
    assert answer.json()["request"] == stored["request"]
