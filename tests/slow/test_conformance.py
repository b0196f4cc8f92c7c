"""What survives compaction, by the canaries of compaction-conformance-kit.

The kit plants rules, constraints, facts, goals and preferences in a session, has it compacted five
times, and looks for their exact words after every round. Here every round is a rolling fold: the
session goes on by two turns, and the fold before is the seed of the next.

The kit's budgets are 10, 20 and 30% of the session in characters. The planted statements alone are
19% of its sessions, so below that no compaction can keep them as they were said; at 10% every rule
is still kept.
"""

# The kit has no types.
# mypy: disable-error-code="import-untyped"

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

import pytest
from compaction_kit.benchmark import run_budget_benchmark
from compaction_kit.canaries import CanaryType, seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import ConformanceRun, run_conformance
from compaction_kit.session import Turn, build_seeded_session
from compaction_kit.testing import assert_no_flags, check_compactor

from app.core.compaction.policy import SummarizerPolicy
from app.core.contents import Text
from app.core.events import Event, Events
from app.core.lanes import ROOT_LANE
from app.core.tokens import part_tokens
from app.providers.tokenizer import Tokenizer
from app.services.summarize_events import summarize_events
from tests.api.conftest import Api, client_of, model, settings_for, user

pytestmark = pytest.mark.slow

ROUNDS: Final = 5
SEEDS: Final = range(1, 13)
TOKENS: Final = Tokenizer()
#: What happens between two folds.
GOES_ON: Final = (
    Turn("user", "Let's carry on with the next part, and tell me what you see on the way."),
    Turn(
        "assistant",
        "I went through the next part. Most of it is as before: the handlers read their input, "
        "hand it down and write what comes back. Some of the names could be clearer, and one of "
        "the loops does the same work twice, which I have made into one. Nothing else changed, "
        "and all that ran before still runs. I will go on with the part after it. ",
    ),
)
#: From a limit in characters to one in tokens: first guess, and what a next one is shorter by.
CHARACTERS_PER_TOKEN: Final = 2.9
SHORTER: Final = 0.97


#: A last section takes at most this part of all that it stands for.
MOST_LEFT: Final = 0.45


def covered_characters(run: ConformanceRun) -> int:
    """Return how much the last section stands for."""
    more = sum(len(turn.text) for turn in GOES_ON)
    return int(run.rounds[0].input_chars) + (ROUNDS - 1) * more


def survival(run: ConformanceRun) -> list[dict[str, float]]:
    """Return what part of each kind of canary survived, by round."""
    return [one.survival_by_type for one in run.rounds]


def everything(run: ConformanceRun) -> list[dict[str, float]]:
    return [dict.fromkeys(one.survival_by_type, 1.0) for one in run.rounds]


class Folding:
    """A compactor of the kit: a session that is folded once a round."""

    name = "foldline-extractive"

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._has_folded = False

    def compact(
        self, turns: list[Turn], round_num: int = 1, budget_chars: int | None = None
    ) -> CompactedContext:
        # From the second round on the kit hands over what it was given; the session has it.
        new = GOES_ON if self._has_folded else tuple(turns)
        self._has_folded = True
        self.append(new)
        text = self.fold(None)
        tokens = int((budget_chars or 0) / CHARACTERS_PER_TOKEN)
        while budget_chars is not None and len(text) > budget_chars:
            text = self.fold(tokens)
            tokens = int(tokens * SHORTER)
        self.keep(text)
        return CompactedContext(text, self.name, round_num)

    def append(self, turns: tuple[Turn, ...]) -> None:
        raise NotImplementedError

    def fold(self, max_output_tokens: int | None) -> str:
        raise NotImplementedError

    def keep(self, text: str) -> None:
        """Note what the round ends with."""


class InMemory(Folding):
    """The summarizer alone."""

    def __init__(self) -> None:
        super().__init__()
        self._seq = 0
        self._events: Events = ()
        self._seed: str | None = None

    def append(self, turns: tuple[Turn, ...]) -> None:
        self._events = tuple(self._event(turn) for turn in turns)

    def _event(self, turn: Turn) -> Event:
        self._seq += 1
        is_model = turn.role == "assistant"
        part = Text(text=turn.text)
        return Event(
            seq=self._seq,
            author="agent" if is_model else "user",
            role="model" if is_model else "user",
            parts=(part,),
            part_tokens=(part_tokens(part, TOKENS.count),),
        )

    def fold(self, max_output_tokens: int | None) -> str:
        summary = asyncio.run(
            summarize_events(
                self._events,
                seed=self._seed,
                lane=ROOT_LANE,
                policy=SummarizerPolicy(max_output_tokens=max_output_tokens),
                provider=None,
                counter=TOKENS,
            )
        )
        return summary.text

    def keep(self, text: str) -> None:
        self._seed = text


# The summarizer alone


def test_the_seeded_session_keeps_everything() -> None:
    report = check_compactor(InMemory(), rounds=ROUNDS, budget_fraction=0.2)

    assert_no_flags(report)
    run = run_conformance(build_seeded_session(), InMemory(), rounds=ROUNDS)
    assert survival(run) == everything(run)
    assert len(run.rounds[0].survival_by_type) == len(CanaryType)


@pytest.mark.parametrize("build", [build_random_session, build_generated_session])
def test_every_session_of_a_corpus_keeps_everything(build: Any) -> None:
    for seed in SEEDS:
        session, canaries = build(seed)
        run = run_conformance(session, InMemory(), rounds=ROUNDS, canaries=canaries)
        assert (seed, survival(run)) == (seed, everything(run))
        assert run.rounds[-1].output_chars < MOST_LEFT * covered_characters(run)


@pytest.mark.parametrize("fraction", [0.2, 0.3])
def test_the_budgets_that_hold_the_canaries_keep_everything(fraction: float) -> None:
    benchmark = run_budget_benchmark({"foldline": InMemory}, budgets=(fraction,), rounds=ROUNDS)

    (entry,) = benchmark["entries"]
    assert entry["budget_compliant"]
    assert entry["randomized"]["overall_final_survival"] == 1.0
    assert entry["semantic"]["distinct_pair_rate"] == 1.0


def test_a_budget_below_the_canaries_keeps_every_rule() -> None:
    session, canaries = build_seeded_session(), seeded_canaries()

    run = run_conformance(
        session, InMemory(), rounds=ROUNDS, canaries=canaries, budget_fraction=0.1
    )

    assert all(one.within_budget for one in run.rounds)
    rules = (CanaryType.SAFETY_RULE.value, CanaryType.HARD_CONSTRAINT.value)
    assert [[one[rule] for rule in rules] for one in survival(run)] == [[1.0, 1.0]] * ROUNDS


# Through the HTTP API


class OverHttp(Folding):
    """A session of the service; its worker folds it."""

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._api = api
        self._loop = loop
        self._path = self._now(api.session(policy={"compaction": {"strategy": "none"}}))
        self._turn = 0

    def _now(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def append(self, turns: tuple[Turn, ...]) -> None:
        self._now(self._api.append(self._path, *(self._event(turn) for turn in turns)))

    def _event(self, turn: Turn) -> dict[str, Any]:
        if turn.role == "assistant":
            return model(turn.text, invocation_id=f"i{self._turn}")
        self._turn += 1
        return user(turn.text, invocation_id=f"i{self._turn}")

    def fold(self, max_output_tokens: int | None) -> str:
        return str(self._now(self._folded(max_output_tokens)))

    async def _folded(self, max_output_tokens: int | None) -> str:
        head_seq = await self._api.head_seq(self._path)
        summarizer = {"kind": "extractive"}
        if max_output_tokens is not None:
            summarizer["max_output_tokens"] = max_output_tokens  # type: ignore[assignment]
        answer = await self._api.post(
            f"{self._path}/compactions",
            {
                "mode": "range",
                "from_seq": 1,
                "to_seq": head_seq,
                "summarizer": summarizer,
                "wait_ms": 30_000,
            },
        )
        assert answer.status_code == 201, answer.text
        compiled = await self._api.post(f"{self._path}/compile", {"format": "openai_chat"})
        assert compiled.status_code == 200, compiled.text
        messages = compiled.json()["request"]["messages"]
        return "\n".join(message["content"] for message in messages)


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    """The service with a worker in it."""
    async with client_of(settings_for(database_url, worker="embedded")) as client:
        yield Api(client)


@pytest.mark.commits
async def test_sessions_folded_over_http_keep_everything(api: Api) -> None:
    loop = asyncio.get_running_loop()
    sessions = [(build_seeded_session(), seeded_canaries())]
    sessions += [build_random_session(seed) for seed in (1, 2, 3)]
    for session, canaries in sessions:
        run = await asyncio.to_thread(
            lambda: run_conformance(
                session,  # noqa: B023
                OverHttp(api, loop),
                rounds=ROUNDS,
                canaries=canaries,  # noqa: B023
            )
        )
        assert survival(run) == everything(run)
        assert run.rounds[-1].output_chars < MOST_LEFT * covered_characters(run)
