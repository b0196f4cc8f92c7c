"""Random streams: we fold what google-adk's own compaction engine folds.

Where our rules differ on purpose (:func:`tests.differential.compacting.differences`) the windows
are not compared; `test_compaction_differences.py` shows both sides of each.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from app.core.compaction.policy import Moment
from tests.differential.compacting import AGENT, Config, SideBySide, described, differences
from tests.differential.reading import EventJson

# google-adk warns that its engine is experimental.
pytestmark = pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning")

#: Streams a chunk; a chunk is one test, so that they spread over processes.
CHUNK: Final = 25
_DEFAULT_LANE: Final = range(12)
_SLOW_LANE: Final = range(12, 160)

chunks = pytest.mark.parametrize(
    "chunk",
    [*_DEFAULT_LANE, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in _SLOW_LANE)],
)


@pytest.fixture(autouse=True)
def _quiet_adk() -> None:
    logging.getLogger("google_adk").setLevel(logging.ERROR)


@chunks
def test_windows_are_those_of_google_adk(chunk: int) -> None:
    told: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        random = Random(seed)  # noqa: S311 - streams, no secrets
        both = SideBySide(_draw_config(random))
        for body in _stream(random):
            both.append(body)
            is_end = not body.get("goes_on")
            if not _compare(both, random, seed, told, is_end=is_end):
                break
    assert told["equal"] > CHUNK, told
    assert told["folded"] > CHUNK // 2, told


def _compare(
    both: SideBySide, random: Random, seed: int, told: Counter[str], *, is_end: bool
) -> bool:
    """Compare what both fold now; tell whether the stream goes on in step."""
    for moment in _moments(both.config, is_end=is_end):
        adks = both.adk_window(moment, summary_chars=random.choice((1, 10, 400)))
        ours = both.our_window(moment)
        if adks == ours:
            told["equal"] += 1
            if adks is not None:
                told["folded"] += 1
                both.take()
                break
            continue
        found = differences(both, moment, adks, ours)
        if not found:
            listing = "\n    ".join(described(both))
            pytest.fail(
                f"seed {seed}, {moment}, {both.config}\n    {listing}\n"
                f"  google-adk {adks}\n  ours {ours}, {both.our_plan(moment)}"
            )
        told.update(found)
        return False
    return True


def _moments(config: Config, *, is_end: bool) -> list[Moment]:
    moments: list[Moment] = []
    if config.threshold is not None:
        moments.append("threshold")
    if config.interval is not None and is_end:
        moments.append("interval")
    return moments


def _draw_config(random: Random) -> Config:
    kind = random.choice(("interval", "interval", "threshold", "both"))
    return Config(
        interval=None if kind == "threshold" else random.randint(1, 4),
        overlap=random.randint(0, 3),
        threshold=None if kind == "interval" else random.choice((1, 50, 200, 400)),
        retention=random.randint(1, 5),
    )


def _stream(random: Random) -> Iterator[EventJson]:
    """Yield the events of some invocations; ``goes_on`` where an invocation does."""
    # Avoided: ids that repeat, branches, scopes and times out of order, where google-adk is WEAK.
    number = calls = 0
    for turn in range(random.randint(3, 14)):
        made = list(_turn(random, calls))
        calls += len(made)
        for position, body in enumerate(made):
            number += 1
            yield {
                "id": f"e{number}",
                "invocation_id": f"i{turn}",
                "timestamp": float(number),
                "goes_on": position < len(made) - 1,
                **body,
            }
        if random.random() < 0.06 and turn:
            number += 1
            back = random.randint(max(0, turn - 3), turn)
            action: dict[str, Any] = {"rewind_before_invocation_id": f"i{back}"}
            yield {
                "id": f"e{number}",
                "invocation_id": f"r{turn}",
                "timestamp": float(number),
                "author": "user",
                "actions": action,
            }


def _turn(random: Random, calls: int) -> Iterator[EventJson]:
    yield _said("user", {"text": "q" * random.choice((1, 40, 300))})
    for step in range(random.choice((0, 0, 1, 1, 2, 3))):
        ids = [f"c{calls}-{step}-{part}" for part in range(random.choice((1, 1, 2)))]
        yield _said(AGENT, *(_call(call_id) for call_id in ids))
        if random.random() < 0.04:
            continue
        yield _said(AGENT, *(_result(random, call_id) for call_id in ids), role="user")
    if random.random() < 0.94:
        yield _said(AGENT, {"text": "a" * random.choice((1, 40, 300))}, usage=random)


def _said(
    author: str, *parts: dict[str, Any], role: str | None = None, usage: Random | None = None
) -> EventJson:
    role = role or ("user" if author == "user" else "model")
    event: EventJson = {"author": author, "content": {"role": role, "parts": list(parts)}}
    if usage is not None and usage.random() < 0.3:
        event["usage_metadata"] = {"prompt_token_count": usage.choice((10, 100, 1_000))}
    return event


def _call(call_id: str) -> dict[str, Any]:
    return {"function_call": {"id": call_id, "name": "t", "args": {"of": call_id}}}


def _result(random: Random, call_id: str) -> dict[str, Any]:
    said = {"said": "r" * random.choice((1, 200))}
    return {"function_response": {"id": call_id, "name": "t", "response": said}}
