"""Compaction over HTTP: what makes it due, what is answered, and whose it is."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.api.conftest import Api, call, client_of, key_for, model, response, settings_for, user
from tests.fakes.canaries import ENGLISH, surviving

pytestmark = pytest.mark.commits

#: Long enough that folding it is worth a summary.
TEXT = " ".join(
    f"Order {number} goes to Oslo before Friday and costs {number * 7} euro."
    for number in range(40)
)
INTERVAL = {
    "compaction": {"strategy": "interval", "compaction_interval": 3, "overlap_size": 1},
}
THRESHOLD = {
    "compaction": {"strategy": "threshold", "token_threshold": 2000, "event_retention_size": 2},
}
WAIT_MS = 30_000


@pytest.fixture
async def working(database_url: str) -> AsyncIterator[Api]:
    """The service with a worker in it."""
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        yield Api(client)


def turn(number: int, text: str = TEXT) -> list[dict[str, Any]]:
    """Return a question and its answer, as an invocation."""
    said = f"Turn {number}. {text}"
    invocation_id = f"i{number}"
    return [user(said, invocation_id=invocation_id), model(said, invocation_id=invocation_id)]


async def ended(api: Api, job_id: str) -> dict[str, Any]:
    """Return a job when it has ended."""
    for _ in range(600):
        job: dict[str, Any] = (await api.get(f"/v1/jobs/{job_id}")).json()
        if job["status"] not in ("ready", "running"):
            return job
        await asyncio.sleep(0.05)
    raise AssertionError(job)


async def compactions(api: Api, path: str) -> list[dict[str, Any]]:
    folds: list[dict[str, Any]] = (await api.get(f"{path}/compactions")).json()["data"]
    return folds


async def filled(api: Api, turns: int, **fields: Any) -> str:
    """Return a session of so many turns."""
    path = await api.session(**fields)
    await api.append(path, *(event for number in range(1, turns + 1) for event in turn(number)))
    return path


# Interval


async def test_every_third_invocation_makes_a_fold_that_overlaps_by_one(working: Api) -> None:
    path = await working.session(policy=INTERVAL)
    scheduled: list[bool] = []
    for number in range(1, 10):
        answer = (await working.append(path, *turn(number)))["compaction"]
        scheduled.append(answer["scheduled"])
        if answer["scheduled"]:
            assert answer["reason"] == "interval"
            assert (await ended(working, answer["job_id"]))["result"]["folded"] > 0

    assert scheduled == [number % 3 == 0 for number in range(1, 10)]
    folds = await compactions(working, path)
    # Seqs 7, 14 and so on are the folds themselves, and no gaps: turns 1-3, 3-6 and 6-9.
    assert [fold["covers"] for fold in folds] == [[[1, 6]], [[5, 13]], [[12, 20]]]
    assert {fold["status"] for fold in folds} == {"active"}


async def test_turns_that_were_appended_together_are_folded_one_interval_at_a_time(
    working: Api,
) -> None:
    path = await working.session(policy=INTERVAL)

    answer = await working.append(path, *(e for number in range(1, 10) for e in turn(number)))

    assert answer["compaction"]["scheduled"]
    for _ in range(600):
        if len(await compactions(working, path)) == 3:
            break
        await asyncio.sleep(0.05)
    assert [fold["covers"] for fold in await compactions(working, path)] == [
        [[1, 6]],
        [[5, 12]],
        [[11, 18]],
    ]


async def test_an_invocation_with_an_open_call_is_not_complete(api: Api) -> None:
    one = {"compaction": {"strategy": "interval", "compaction_interval": 1, "overlap_size": 0}}
    path = await api.session(policy=one)
    asked = call("search", "c1") | {"invocation_id": "i1"}
    told = model("I am on it.", invocation_id="i1")
    answered = response("search", "c1") | {"invocation_id": "i1"}

    before = await api.append(path, user(TEXT, invocation_id="i1"), asked, told)
    during = await api.append(path, answered)
    after = await api.append(path, model(TEXT, invocation_id="i1"))

    assert [a["compaction"]["scheduled"] for a in (before, during, after)] == [False, False, True]


async def test_an_append_may_say_that_its_invocation_is_complete(api: Api) -> None:
    one = {"compaction": {"strategy": "interval", "compaction_interval": 1, "overlap_size": 0}}
    path = await api.session(policy=one)

    begun = await api.append(path, user(TEXT, invocation_id="i1"))
    said = await api.append(
        path, call("search", "c1") | {"invocation_id": "i1", "invocation_complete": True}
    )

    assert not begun["compaction"]["scheduled"]
    assert said["compaction"]["scheduled"]


async def test_a_session_has_one_open_job(api: Api) -> None:
    path = await api.session(policy=INTERVAL)
    job_ids = {
        (await api.append(path, *turn(number)))["compaction"].get("job_id")
        for number in range(1, 8)
    }

    assert len(job_ids) == 2
    assert None in job_ids


async def test_a_replayed_append_answers_the_same_job(api: Api) -> None:
    path = await filled(api, 2, policy=INTERVAL)
    headers = {"Idempotency-Key": uuid4().hex}
    body = {"events": turn(3)}

    first = await api.post(f"{path}/events", body, headers=headers)
    again = await api.post(f"{path}/events", body, headers=headers)

    assert first.json()["compaction"]["scheduled"]
    assert again.json()["compaction"] == first.json()["compaction"]


# Threshold


async def test_a_compile_tells_that_it_is_too_large(api: Api) -> None:
    path = await api.session(policy=THRESHOLD)
    small = (await api.post(f"{path}/compile", {})).json()["compaction"]
    # Nothing but a final response asks for a look at an append.
    await api.append(path, *(user(TEXT, invocation_id="i1") for _ in range(4)))

    large = (await api.post(f"{path}/compile", {})).json()["compaction"]

    assert small == {"due": False, "reason": None, "job_id": None}
    assert (large["due"], large["reason"]) == (True, "threshold")
    job = (await api.get(f"/v1/jobs/{large['job_id']}")).json()
    assert (job["status"], job["kind"]) == ("ready", "compact")


async def test_system_and_tools_count_for_the_size_of_a_compile(api: Api) -> None:
    path = await api.session(policy=THRESHOLD)
    await api.append(path, user("hi"))

    answer = await api.post(f"{path}/compile", {"system": TEXT * 4})

    assert answer.json()["compaction"]["reason"] == "threshold"


async def test_a_compile_may_wait_for_the_fold(working: Api) -> None:
    path = await filled(working, 1, policy=THRESHOLD)
    await working.append(path, *(e for number in range(2, 7) for e in turn(number)))

    answer = await working.post(f"{path}/compile", {"compaction_wait_ms": WAIT_MS})

    body = answer.json()
    assert not body["compaction"]["due"]
    assert body["tokens"]["by_segment"]["summaries"] > 0
    assert body["tokens"]["total"] < 2000 + 2 * 1100
    [fold, *_] = await compactions(working, path)
    assert (fold["moment"], fold["summarizer"]) == ("threshold", "extractive")


async def test_a_lane_of_which_nothing_could_be_told_stays_as_it_is(working: Api) -> None:
    policy = {"strategy": "threshold", "token_threshold": 300, "event_retention_size": 2}
    path = await working.session(policy={"compaction": policy})
    stops = "Stop A: harbour gate 4, open 9 to 17. " * 20
    for number in range(7):
        await working.append(
            path, user(f"Ring bell number {number}7, not the other."), model(stops)
        )
    aside = model("w2196 the API key is AK-99121 and port 8443") | {"branch": "bot.sub"}
    await working.append(path, aside, model(stops), user("And on, please."))

    for _ in range(3):
        await working.post(f"{path}/compile", {"compaction_wait_ms": WAIT_MS})

    folds = await compactions(working, path)
    assert folds
    assert all(fold["tokens_after"] < fold["tokens_before"] for fold in folds)
    assert {section["lane"]["branch"] for fold in folds for section in fold["sections"]} == {""}
    answer = await working.post(f"{path}/compile", {"branch": "bot.sub"})
    assert "AK-99121" in answer.text
    listed = (await working.get(f"{path}/compactions")).json()["nothing_folded"]
    assert listed["reason"] in ("not_smaller", "no_room", "refused_span")


async def test_a_wait_that_runs_out_answers_without_the_fold(api: Api) -> None:
    path = await api.session(policy=THRESHOLD)
    await api.append(path, *(user(TEXT) for _ in range(4)))

    answer = await api.post(f"{path}/compile", {"compaction_wait_ms": 50})

    assert answer.status_code == 200
    assert answer.json()["compaction"]["due"]
    assert answer.json()["tokens"]["by_segment"]["summaries"] == 0


async def test_a_compile_of_the_past_asks_for_no_fold(api: Api) -> None:
    path = await api.session(policy=THRESHOLD)
    await api.append(path, *(user(TEXT) for _ in range(4)))

    answer = await api.post(f"{path}/compile", {"as_of_seq": 4})

    assert not answer.json()["compaction"]["due"]


async def test_the_default_policy_does_nothing_for_a_session_that_fits(api: Api) -> None:
    path = await api.session()

    appended = await api.append(path, *(e for number in range(1, 9) for e in turn(number)))
    compiled = (await api.post(f"{path}/compile", {})).json()

    assert not appended["compaction"]["scheduled"]
    assert not compiled["compaction"]["due"]


async def test_what_cannot_shrink_is_looked_at_once_until_it_has_grown(working: Api) -> None:
    path = await working.session(policy=THRESHOLD)
    await working.append(path, user(TEXT * 4, invocation_id="i1"))

    first = (await working.post(f"{path}/compile", {})).json()["compaction"]
    job = await ended(working, first["job_id"])
    again = (await working.post(f"{path}/compile", {})).json()["compaction"]
    await working.append(path, user(TEXT, invocation_id="i1"))
    grown = (await working.post(f"{path}/compile", {})).json()["compaction"]

    assert (job["status"], job["result"]["folded"]) == ("done", 0)
    # While nothing is tried, the answer says what the last try found.
    reason = job["result"]["reason"]
    assert reason == "too_few_events"
    assert again == {"due": False, "reason": reason, "job_id": job["id"]}
    assert grown["due"]
    page = (await working.get(f"{path}/compactions")).json()
    assert page["data"] == []
    assert page["nothing_folded"]["reason"] == reason


async def test_a_compile_that_waits_for_what_cannot_shrink_ends_with_the_reason(
    working: Api,
) -> None:
    policy = {"compaction": {"strategy": "auto", "context_window": 2_000}}
    path = await working.session(policy=policy)
    await working.append(path, user("Hi."), model("Hello."))
    body = {"system": TEXT * 6, "compaction_wait_ms": WAIT_MS}

    answers = [(await working.post(f"{path}/compile", body)).json() for _ in range(3)]

    # One try, however often it is asked for.
    jobs = {answer["compaction"]["job_id"] for answer in answers}
    assert len(jobs) == 1
    for answer in answers:
        assert answer["compaction"]["due"] is False
        assert answer["compaction"]["reason"] == "too_few_events"
    page = (await working.get(f"{path}/compactions")).json()
    assert (page["data"], page["nothing_folded"]["job_id"]) == ([], *jobs)


@pytest.fixture
async def small_model(database_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """The service with a worker in it, for which requests of the model `small` take 4,000
    tokens."""
    rules = tmp_path / "rules.json"
    family = {
        "family": "small",
        "provider": "p",
        "match": ["small"],
        "window_tokens": [5_000, "ours"],
        "output_reserve_tokens": [1_000, "ours"],
    }
    told = {"rules_date": "2026-11-30", "sources": {"ours": "a test"}, "families": [family]}
    rules.write_text(json.dumps(told))
    settings = settings_for(database_url, worker="embedded", model_rules=rules)
    async with client_of(settings) as client:
        yield Api(client)


async def test_what_a_model_takes_is_folded_before_it_is_cut(small_model: Api) -> None:
    path = await small_model.session()
    body = {"agent": "bot", "model": "small", "compaction_wait_ms": WAIT_MS}
    totals = []
    for number in range(1, 13):
        await small_model.append(path, *turn(number))
        answer = (await small_model.post(f"{path}/compile", body)).json()
        assert answer["budget"]["limit"] == 4_000
        assert answer["budget"]["actions"] == []
        totals.append(answer["tokens"]["total"])
    assert max(totals) < 0.85 * 4_000 + 1_300
    assert await compactions(small_model, path)


async def test_a_request_that_was_cut_counts_as_what_it_would_have_been(small_model: Api) -> None:
    path = await filled(small_model, 8)
    body = {"agent": "bot", "model": "small"}
    answer = (await small_model.post(f"{path}/compile", body)).json()
    assert answer["budget"]["actions"]
    assert answer["tokens"]["total"] < 0.85 * 4_000
    assert answer["compaction"]["due"]


async def test_a_small_budget_of_one_request_folds_nothing(small_model: Api) -> None:
    path = await filled(small_model, 2)
    body = {"agent": "bot", "model": "small", "budget": {"max_input_tokens": 1_000}}
    answer = (await small_model.post(f"{path}/compile", body)).json()
    assert answer["budget"]["actions"]
    assert not answer["compaction"]["due"]


async def test_a_fold_clears_what_the_last_look_said(working: Api) -> None:
    path = await filled(working, 6, policy=THRESHOLD)

    await working.post(f"{path}/compile", {"compaction_wait_ms": WAIT_MS})

    page = (await working.get(f"{path}/compactions")).json()
    assert page["data"]
    assert page["nothing_folded"] is None


async def test_a_try_at_what_was_small_keeps_nothing_back(api: Api, database_url: str) -> None:
    path = await api.session(policy=_threshold(500))
    await api.append(path, *(user(TEXT, invocation_id="i1") for _ in range(2)))
    large = (await api.post(f"{path}/compile", {})).json()
    await api.patch(path, {"policy": _threshold(large["tokens"]["total"] + 10)})
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        working = Api(client)
        # What is due already finds less than the new threshold.
        job = await ended(working, large["compaction"]["job_id"])
        small = (await working.post(f"{path}/compile", {})).json()["compaction"]
        said = user("Please go on with all of them now, just as we said before.")
        grown = (await working.post(f"{path}/compile", {"append": [said]})).json()["compaction"]

    assert job["result"]["reason"] == "below_threshold"
    assert not small["due"]
    assert grown["due"]


def _threshold(tokens: int) -> dict[str, Any]:
    members = {"strategy": "threshold", "token_threshold": tokens, "event_retention_size": 1}
    return {"compaction": members}


async def test_small_talk_is_not_worth_a_fold(working: Api) -> None:
    path = await working.session(policy=INTERVAL)
    jobs = [(await working.append(path, *turn(n, "Hi.")))["compaction"] for n in range(1, 10)]
    job_ids = {job["job_id"] for job in jobs if job["scheduled"]}

    for job_id in job_ids:
        job = await ended(working, job_id)
        assert (job["status"], job["result"]["folded"]) == ("done", 0)

    assert await compactions(working, path) == []


# Policies


async def test_a_session_without_a_policy_follows_its_app(api: Api) -> None:
    app = f"app-{uuid4().hex}"
    await api.put(f"/v1/apps/{app}/policy", INTERVAL)
    follows = await filled(api, 2, app_name=app)
    differs = await filled(api, 2, app_name=app, policy={"compaction": {"strategy": "none"}})

    assert (await api.append(follows, *turn(3)))["compaction"]["scheduled"]
    assert not (await api.append(differs, *turn(3)))["compaction"]["scheduled"]


async def test_the_server_has_a_policy_for_all_others(database_url: str) -> None:
    async with client_of(settings_for(database_url, default_policy=INTERVAL)) as client:
        api = Api(client)
        path = await filled(api, 2)

        assert (await api.append(path, *turn(3)))["compaction"]["scheduled"]


async def test_without_a_summarizer_nothing_is_due(api: Api) -> None:
    path = await filled(api, 2, policy={**INTERVAL, "summarizer": {"kind": "none"}})

    assert not (await api.append(path, *turn(3)))["compaction"]["scheduled"]
    asked = await api.post(f"{path}/compactions", {"mode": "range"})
    assert (asked.status_code, asked.json()["reason"]) == (200, "no_summarizer")


async def test_a_model_that_the_server_does_not_have_is_made_up_for_by_code(working: Api) -> None:
    path = await filled(working, 3, policy={"summarizer": {"kind": "openai", "model": "any"}})

    answer = await working.post(f"{path}/compactions", {"mode": "range", "wait_ms": WAIT_MS})

    assert answer.status_code == 201
    assert answer.json()["fallback_reason"] == "not_configured"
    assert answer.json()["summarizer"] == "extractive"


# On request


async def test_a_range_is_folded_on_request(working: Api) -> None:
    path = await filled(working, 4)

    answer = await working.post(
        f"{path}/compactions", {"mode": "range", "from_seq": 1, "to_seq": 4, "wait_ms": WAIT_MS}
    )

    assert answer.status_code == 201
    fold = answer.json()
    assert (fold["covers"], fold["moment"], fold["level"]) == ([[1, 4]], "range", 1)
    assert 0 < fold["tokens_after"] < fold["tokens_before"]
    assert fold["duration_ms"] >= 0
    [section] = fold["sections"]
    assert section["ledger"]
    assert set(section["ledger"][0]) == {"class", "text", "seqs"}
    assert [fold] == await compactions(working, path)
    assert (await working.get(f"{path}/compactions/{fold['seq']}")).json() == fold


async def test_the_newest_events_stay_if_asked_for(working: Api) -> None:
    path = await filled(working, 4)

    answer = await working.post(
        f"{path}/compactions", {"mode": "range", "keep_last": 2, "wait_ms": WAIT_MS}
    )

    assert answer.json()["covers"] == [[1, 6]]


async def test_without_a_wait_the_job_is_answered(api: Api) -> None:
    path = await filled(api, 4)

    answer = await api.post(f"{path}/compactions", {"mode": "range"})

    assert answer.status_code == 202
    job = (await api.get(f"/v1/jobs/{answer.json()['job_id']}")).json()
    assert (job["status"], job["kind"], job["attempts"]) == ("ready", "compact_asked", 0)


async def test_what_cannot_be_folded_says_why_at_once(api: Api) -> None:
    path = await api.session()

    empty = await api.post(f"{path}/compactions")
    await api.append(path, *turn(1))
    await api.post(f"{path}/pins", {"seqs": [1, 2]})
    pinned = await api.post(f"{path}/compactions", {"mode": "range"})
    missing = await api.post("/v1/sessions/none/compactions")

    assert empty.status_code == pinned.status_code == 200
    assert empty.json()["folded"] == pinned.json()["folded"] == 0
    assert pinned.json()["reason"] == "all_protected"
    assert missing.status_code == 404


async def test_a_repeated_request_makes_one_fold(working: Api) -> None:
    path = await filled(working, 4)
    headers = {"Idempotency-Key": uuid4().hex}
    body = {"mode": "range", "to_seq": 4, "wait_ms": WAIT_MS}

    first = await working.post(f"{path}/compactions", body, headers=headers)
    again = await working.post(f"{path}/compactions", body, headers=headers)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
    assert len(await compactions(working, path)) == 1


async def test_another_wish_waits_until_the_first_is_done(api: Api) -> None:
    path = await filled(api, 4)
    first = await api.post(f"{path}/compactions", {"mode": "range", "to_seq": 4})

    same = await api.post(f"{path}/compactions", {"mode": "range", "to_seq": 4})
    other = await api.post(f"{path}/compactions", {"mode": "range", "to_seq": 6})

    assert same.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert other.json()["job_id"] == first.json()["job_id"]


@pytest.mark.parametrize(
    "body",
    [
        {"mode": "fanout"},
        {"summarizer": "gpt"},
        {"summarizer": {"kind": "openai", "url": "http://example.com"}},
        {"wait_ms": 10**9},
    ],
)
async def test_wishes_that_make_no_sense_are_refused(api: Api, body: dict[str, Any]) -> None:
    path = await filled(api, 1)

    answer = await api.post(f"{path}/compactions", body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"mode": "auto", "from_seq": 1, "to_seq": 2}, "/from_seq"),
        ({"branch": "main"}, "/branch"),
        ({"mode": "threshold", "keep_last": 2}, "/keep_last"),
        ({"mode": "range", "from_seq": 4, "to_seq": 2}, "/from_seq"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_refused_by_name(
    api: Api, body: dict[str, Any], pointer: str
) -> None:
    path = await api.session()

    answer = await api.post(f"{path}/compactions", body)

    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


async def test_a_staged_fold_changes_nothing_until_it_is_activated(working: Api) -> None:
    staged = {"compaction": {"strategy": "auto", "activation": "staged"}}
    path = await filled(working, 4, policy=staged)
    before = (await working.post(f"{path}/compile", {})).json()

    fold = (
        await working.post(
            f"{path}/compactions", {"mode": "range", "to_seq": 4, "wait_ms": WAIT_MS}
        )
    ).json()

    assert fold["status"] == "staged"
    staging = (await working.post(f"{path}/compile", {})).json()
    assert staging["request"] == before["request"]
    again = await working.post(f"{path}/compactions", {"mode": "range", "to_seq": 4})
    assert again.json()["folded"] == 0
    await working.post(f"{path}/compactions/{fold['seq']}/activate")
    active = (await working.post(f"{path}/compile", {})).json()
    assert active["tokens"]["by_segment"]["summaries"] == fold["tokens_after"]


async def test_an_open_call_stays_out_of_a_fold(working: Api) -> None:
    path = await filled(working, 2)
    await working.append(path, call("search", "c1"), *turn(3))

    answer = await working.post(f"{path}/compactions", {"mode": "range", "wait_ms": WAIT_MS})

    assert answer.status_code == 201
    compiled = (await working.post(f"{path}/compile", {})).json()
    assert answer.json()["holes"] or compiled["pending"] == []


# Jobs


async def test_what_a_small_section_leaves_out_is_still_found(working: Api) -> None:
    told = [one for one in ENGLISH if one.kind in ("fact", "state", "preference")]
    path = await working.session(policy={"compaction": {"strategy": "none"}})
    said = [event for one in told for event in (user(one.text), model(TEXT))]
    await working.append(path, *said)
    body = {
        "mode": "range",
        "from_seq": 1,
        "to_seq": len(said),
        "summarizer": {"kind": "extractive", "max_output_tokens": 200},
        "wait_ms": 30_000,
    }
    fold = (await working.post(f"{path}/compactions", body)).json()
    [section] = (await working.get(f"{path}/compactions/{fold['seq']}")).json()["sections"]
    text = section["content"]["parts"][0]["text"]
    lost = [one for one in told if one not in surviving(tuple(told), text)]
    # A budget is a cap: most of them do not fit, and none is gone.
    assert len(lost) > len(told) // 2
    for one in lost:
        seq = 2 * told.index(one) + 1
        found = await working.post(f"{path}/recall", {"query": " ".join(one.values)})
        assert seq in [hit["seq"] for hit in found.json()["hits"]]


async def test_a_cancelled_job_is_not_done(api: Api, database_url: str) -> None:
    path = await filled(api, 4)
    job_id = (await api.post(f"{path}/compactions", {"mode": "range"})).json()["job_id"]

    cancelled = await api.post(f"/v1/jobs/{job_id}/cancel")

    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        other = Api(client)
        done = await filled(other, 4)
        await other.post(f"{done}/compactions", {"mode": "range", "wait_ms": WAIT_MS})
    assert await compactions(api, path) == []
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "cancelled"


async def test_jobs_belong_to_their_tenant(api: Api, database_url: str) -> None:
    path = await filled(api, 4)
    job_id = (await api.post(f"{path}/compactions", {"mode": "range"})).json()["job_id"]
    scopes = ("events:write", "events:read", "compile")
    key = await key_for(settings_for(database_url), f"tenant-{uuid4().hex}", *scopes)
    other = Api(api.client, key=key)

    for answer in (
        await other.get(f"/v1/jobs/{job_id}"),
        await other.post(f"/v1/jobs/{job_id}/cancel"),
        await other.post(f"{path}/compactions", {"mode": "range"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["status"] == "ready"


async def test_a_job_goes_with_its_session(api: Api) -> None:
    path = await filled(api, 4)
    job_id = (await api.post(f"{path}/compactions", {"mode": "range"})).json()["job_id"]

    await api.delete(path)

    assert (await api.get(f"/v1/jobs/{job_id}")).status_code == 404
    assert (await api.get("/v1/jobs/not-an-id")).status_code == 422


async def test_what_a_session_reads_is_its_live_events_and_its_summaries(api: Api) -> None:
    path = await api.session()
    appended = (await api.append(path, *(event for n in range(1, 4) for event in turn(n))))[
        "appended"
    ]
    body = {"covers": {"from_seq": 1, "to_seq": 4}, "content": "Orders went to Oslo."}
    assert (await api.post(f"{path}/summaries", body)).status_code == 201
    (fold,) = await compactions(api, path)
    stats = (await api.get(path)).json()["stats"]
    live = sum(event["tokens"] for event in appended[4:])
    assert (stats["live_events"], stats["tokens_live"]) == (2, live + fold["tokens_after"])
