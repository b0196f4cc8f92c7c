"""Reports of usage: what they teach, what they say of the cache, and what an overflow changes."""

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.api.conftest import Api, model, user

WORDS = "the quick brown fox jumps over the lazy dog and runs into the deep dark wood "


def own_model() -> str:
    """Return a model that no rule knows and no other test reports of."""
    return f"model-{uuid4().hex}"


async def compiled(api: Api, path: str, model_name: str, **options: Any) -> dict[str, Any]:
    """Compile for a model and return the answer's body."""
    body = {"agent": "agent", "format": "anthropic", "model": model_name, **options}
    answer = await api.post(f"{path}/compile", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def reported(api: Api, path: str, fingerprint: str, **report: Any) -> dict[str, Any]:
    """Report and return the answer's body."""
    answer = await api.post(f"{path}/usage", {"fingerprint": fingerprint, **report})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def answer_to(api: Api, path: str, body: dict[str, Any], **fields: Any) -> None:
    """Append the reply to a compile, and the next question."""
    reply = model(
        "a reply",
        compiled_seq=body["compiled_seq"],
        compiled_fingerprint=body["fingerprint"],
        **fields,
    )
    await api.append(path, reply, user("and then? " + WORDS * 5))


async def test_a_tokenizer_of_130_percent_is_learnt_within_five_reports(api: Api) -> None:
    path, name, unknown = await api.session(), own_model(), own_model()
    await api.append(path, user(WORDS * 40))
    for _ in range(5):
        body = await compiled(api, path, name)
        ours = (await compiled(api, path, unknown))["tokens"]["total"]
        theirs = round(ours * 1.3)
        await reported(api, path, body["fingerprint"], usage={"input_tokens": theirs})
        await answer_to(api, path, body)
    body = await compiled(api, path, name)
    ours = (await compiled(api, path, unknown))["tokens"]["total"]
    tokens = body["tokens"]
    assert abs(tokens["total"] - 1.3 * ours) <= 0.02 * 1.3 * ours
    assert tokens["method"].endswith("_calibrated")
    assert 0 < tokens["error_bound"] < 0.1 * tokens["total"]


async def test_one_request_teaches_once(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    ours = body["tokens"]["total"]
    for theirs in (round(1.3 * ours), 3 * ours):
        await reported(api, path, body["fingerprint"], usage={"input_tokens": theirs})
    again = await compiled(api, path, name)
    assert abs(again["tokens"]["total"] - 1.3 * ours) < 0.03 * ours


async def test_what_is_learnt_of_one_model_says_nothing_of_another(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    ours = body["tokens"]["total"]
    await reported(api, path, body["fingerprint"], usage={"input_tokens": 2 * ours})
    assert (await compiled(api, path, own_model()))["tokens"]["total"] == ours


async def test_what_a_reply_reports_is_the_beginning_of_the_next_count(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    await answer_to(api, path, body, usage_metadata={"prompt_token_count": 5_000})
    after = await compiled(api, path, name)
    assert after["tokens"]["method"].startswith("reported+")
    assert 5_000 < after["tokens"]["total"] < 5_200
    assert sum(after["tokens"]["by_segment"].values()) == after["tokens"]["total"]


async def test_a_report_of_another_prefix_counts_no_more(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    await answer_to(api, path, body, usage_metadata={"prompt_token_count": 5_000})
    other = await compiled(api, path, name, system="another system text")
    assert not other["tokens"]["method"].startswith("reported+")


async def test_an_overflow_makes_the_next_compile_fit(api: Api) -> None:
    path, name = await api.session(), own_model()
    for _ in range(6):
        await api.append(path, user(WORDS * 20), model("ok " + WORDS * 20))
    await api.append(path, user("now?"))
    body = await compiled(api, path, name)
    ours = body["tokens"]["total"]
    actual, limit = round(1.3 * ours), round(0.8 * ours)
    text = f"prompt is too long: {actual} tokens > {limit} maximum"
    error = {"status": 400, "body": {"error": {"message": text}}}
    answer = await reported(api, path, body["fingerprint"], error=error)
    assert answer["overflow"]["detected"]
    assert (answer["overflow"]["limit"], answer["overflow"]["actual"]) == (limit, actual)
    assert answer["error_kind"] == "overflow"
    assert answer["compaction"]["due"]
    after = await compiled(api, path, name)
    assert after["budget"]["limit"] == answer["overflow"]["budget_tokens"] <= limit
    assert after["tokens"]["total"] <= after["budget"]["limit"]
    assert after["budget"]["actions"]


async def capped(api: Api, path: str, name: str) -> tuple[dict[str, Any], int]:
    """Report that a request was too long; return its compile and what requests may take then."""
    await api.append(path, *[e for _ in range(6) for e in (user(WORDS * 20), model(WORDS * 20))])
    await api.append(path, user("now?"))
    body = await compiled(api, path, name)
    text = f"prompt is too long: {body['tokens']['total']} tokens > 1100 maximum"
    error = {"status": 400, "body": {"error": {"message": text}}}
    answer = await reported(api, path, body["fingerprint"], error=error)
    limit: int = answer["overflow"]["budget_tokens"]
    assert limit < body["tokens"]["total"]
    assert (await compiled(api, path, name))["budget"]["limit"] == limit
    return body, limit


async def test_a_request_that_went_through_after_all_lifts_the_limit(api: Api) -> None:
    path, name = await api.session(), own_model()
    body, _ = await capped(api, path, name)
    theirs = body["tokens"]["total"]
    for _ in range(2):
        await reported(api, path, body["fingerprint"], usage={"input_tokens": theirs})
        assert (await compiled(api, path, name))["budget"]["limit"] == theirs


async def test_an_error_without_a_count_leaves_it_to_a_later_report(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    error = {"status": 400, "body": "Input is too long for requested model."}
    await reported(api, path, body["fingerprint"], error=error)
    theirs = 2 * body["tokens"]["total"]
    await reported(api, path, body["fingerprint"], usage={"input_tokens": theirs})
    assert (await compiled(api, path, name))["tokens"]["total"] > 1.8 * body["tokens"]["total"]


async def test_an_administrator_has_it_begin_anew_with_a_model(api: Api) -> None:
    path, name = await api.session(), f"lab/{own_model()}"
    await capped(api, path, name)
    where = f"/v1/admin/calibrations/{quote(name, safe='')}"
    assert (await api.delete(where)).status_code == 204
    assert (await compiled(api, path, name))["budget"]["limit"] is None
    entry = (await api.get("/v1/admin/audit?action=forget_model&limit=1")).json()["data"][0]
    assert (entry["action"], entry["target"]) == ("forget_model", name)
    again = await api.delete(where)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_an_overflow_without_numbers_takes_a_tenth_off(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, *[e for _ in range(6) for e in (user(WORDS * 20), model(WORDS * 20))])
    await api.append(path, user("now?"))
    body = await compiled(api, path, name)
    error = {"status": 400, "body": "Input is too long for requested model."}
    answer = await reported(api, path, body["fingerprint"], error=error)
    after = await compiled(api, path, name)
    assert answer["overflow"]["limit"] is None
    assert after["tokens"]["total"] <= after["budget"]["limit"] < body["tokens"]["total"]


async def test_what_is_no_overflow_changes_nothing(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    body = await compiled(api, path, name)
    for text, kind in (
        ("string_above_max_length", "other"),
        ("No tool output found for function call call_1.", "malformed_history"),
    ):
        error = {"status": 400, "body": text}
        answer = await reported(api, path, body["fingerprint"], error=error)
        assert (answer["error_kind"], answer["overflow"]["detected"]) == (kind, False)
    assert (await compiled(api, path, name))["budget"]["limit"] is None


async def test_the_cache_is_held_to_what_was_sent_before(api: Api) -> None:
    path, name = await api.session(), own_model()
    await api.append(path, user(WORDS * 40))
    first = await compiled(api, path, name)
    assert first["cache"]["shared_prefix_tokens"] == 0
    await answer_to(api, path, first)
    second = await compiled(api, path, name)
    shared = second["cache"]["shared_prefix_tokens"]
    assert shared == first["tokens"]["total"]
    usage = {"input_tokens": second["tokens"]["total"], "cached_tokens": shared}
    answer = await reported(api, path, second["fingerprint"], usage=usage)
    assert (answer["verdict"], answer["hit_ratio"]) == ("hit", 1.0)
    assert answer["expected_cached_tokens"] == shared
    missed = await reported(api, path, second["fingerprint"], usage={**usage, "cached_tokens": 0})
    assert (missed["verdict"], missed["hit_ratio"]) == ("prefix_changed", 0.0)


async def test_a_fingerprint_that_nobody_compiled_teaches_nothing(api: Api) -> None:
    path = await api.session()
    answer = await reported(api, path, "0" * 64, usage={"input_tokens": 9})
    assert (answer["verdict"], answer["overflow"]["detected"]) == ("unknown", False)


async def test_a_report_needs_a_session_and_one_of_usage_and_error(api: Api) -> None:
    path = await api.session()
    gone = await api.post(f"{path}x/usage", {"fingerprint": "0", "usage": {"input_tokens": 5}})
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert (await api.post(f"{path}/usage", {"fingerprint": "0"})).status_code == 422


async def test_the_same_inputs_compile_to_the_same_bytes_whatever_was_learnt_since(
    api: Api,
) -> None:
    path = await api.session()
    await api.append(path, *[e for _ in range(6) for e in (user(WORDS * 20), model(WORDS * 20))])
    await api.append(path, user("now?"))
    # A budget makes what is known of the model matter to what is sent.
    options = {"budget": {"max_input_tokens": 1_500}}
    body = await compiled(api, path, "claude-opus-5-5", **options)
    usage = {"input_tokens": 3 * body["tokens"]["total"]}
    await reported(api, path, body["fingerprint"], usage=usage)
    again = await compiled(api, path, "claude-opus-5-5", inputs=body["inputs"]["digest"], **options)
    assert again["request"] == body["request"]
    assert again["inputs"] == body["inputs"]


async def test_a_known_model_has_a_budget_and_the_rules_have_a_date(api: Api) -> None:
    path = await api.session()
    await api.append(path, user("hi"))
    assert (await compiled(api, path, "gpt-5"))["budget"]["limit"] == 272_000
    assert (await compiled(api, path, own_model()))["budget"]["limit"] is None
    assert (await api.get("/v1/info")).json()["rules_date"] == "2026-11-29"


@pytest.mark.parametrize(
    ("usage", "pointer"),
    [
        ({"input_tokens": -1}, "/usage/input_tokens"),
        ({"input_tokens": "many"}, "/usage/input_tokens"),
        ({"input_tokens": 1.5}, "/usage/input_tokens"),
        ({"input_tokens": True}, "/usage/input_tokens"),
        ({"input_tokens": 2**40}, "/usage/input_tokens"),
        ({"prompt_tokens": 5, "completion_tokens": -5}, "/usage/completion_tokens"),
        ({"promptTokenCount": 5, "cachedContentTokenCount": []}, "/usage/cachedContentTokenCount"),
        ({"inputTokens": 5, "cacheReadInputTokens": -1}, "/usage/cacheReadInputTokens"),
        (
            {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}},
            "/usage/prompt_tokens_details/cached_tokens",
        ),
        ({"prompt_tokens": 5, "prompt_tokens_details": 5}, "/usage/prompt_tokens_details"),
        ({}, "/usage"),
        ({"tokens": 5}, "/usage"),
        ({"input_tokens": None}, "/usage"),
    ],
)
async def test_what_is_no_count_is_refused_and_teaches_nothing(
    api: Api, usage: dict[str, Any], pointer: str
) -> None:
    path = await api.session()
    await api.append(path, user("hi " * 400))
    body = (await api.post(f"{path}/compile", {"format": "openai_chat", "model": "gpt-5"})).json()
    report = {"fingerprint": body["fingerprint"], "usage": usage}
    answer = await api.post(f"{path}/usage", report)
    assert answer.status_code == 422, answer.text
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    again = (await api.post(f"{path}/compile", {"format": "openai_chat", "model": "gpt-5"})).json()
    assert again["tokens"] == body["tokens"]


async def test_gemini_s_details_by_modality_are_no_counts_of_ours(api: Api) -> None:
    path = await api.session()
    details = [{"modality": "TEXT", "tokenCount": 5}]
    usage = {"promptTokenCount": 5, "promptTokensDetails": details}
    answer = await api.post(f"{path}/usage", {"fingerprint": "f", "usage": usage})
    assert answer.status_code == 200, answer.text


async def long_session(api: Api) -> str:
    """Make a session of some 5,000 tokens that is folded by size."""
    path = await api.session()
    turns = [e for _ in range(16) for e in (user(WORDS * 10), model(WORDS * 10))]
    await api.append(path, *turns, user("now?"))
    return path


@pytest.mark.parametrize(("name", "theirs"), [("gpt-4o", 1_200), ("", 600)])
async def test_a_count_that_no_provider_can_have_read_holds_nobody(
    api: Api, name: str, theirs: int
) -> None:
    path, name = await long_session(api), name or own_model()
    before = await compiled(api, path, name)
    assert before["tokens"]["total"] > 4 * theirs
    answer = await reported(api, path, before["fingerprint"], usage={"input_tokens": theirs})

    assert not answer["overflow"]["detected"]
    assert not answer["compaction"]["due"]
    after = await compiled(api, path, name)
    assert (after["budget"], after["tokens"]["total"]) == (
        before["budget"],
        before["tokens"]["total"],
    )


async def test_a_provider_that_reads_a_part_without_a_word_is_noticed(api: Api) -> None:
    path, name = await long_session(api), own_model()
    body = await compiled(api, path, name)
    answer = await reported(api, path, body["fingerprint"], usage={"input_tokens": 2_048})

    assert answer["overflow"]["detected"]
    assert (await compiled(api, path, name))["budget"]["limit"] == 2_048


@pytest.mark.parametrize("is_error", [True, False])
async def test_what_is_not_believed_folds_nothing(api: Api, *, is_error: bool) -> None:
    path = await long_session(api)
    body = await compiled(api, path, "gpt-4o")
    text = (
        "This model's maximum context length is 1000000 tokens. However, your messages resulted"
        " in 1500000 tokens."
    )
    error = {"status": 400, "body": {"error": {"message": text}}}
    said = {"error": error} if is_error else {"usage": {"input_tokens": 1_500_000}}
    answer = await reported(api, path, body["fingerprint"], **said)

    assert answer["overflow"]["budget_tokens"] is None
    assert not answer["compaction"]["due"]
