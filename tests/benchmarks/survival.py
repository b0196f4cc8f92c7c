"""What survives five rolling folds without a model, in two tables.

    python -m tests.benchmarks.survival                    both tables, in Markdown
    python -m tests.benchmarks.survival --data FOLDER      where the recorded sessions are

The first plants the canaries of compaction-conformance-kit in the kit's own sessions, over HTTP, in
a service of its own: at our own budget and at the three of the kit's benchmark. Every round is a
rolling fold: the session goes on by two turns, and the fold before is the seed of the next. The
second plants statements of our own, in English and Chinese, in recorded sessions.

A canary survives when every word that its probe asks for is there. A cell of the first table is the
lowest of all rounds and sessions; of the second, how many are there after the last round, over all
sessions. The last section's size is a part of what it stands for: the median of the sessions.
"""

# The kit has no types.
# mypy: disable-error-code="import-untyped"

import argparse
import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
from compaction_kit.benchmark import DEFAULT_BUDGETS
from compaction_kit.canaries import Canary as KitCanary
from compaction_kit.canaries import CanaryType, seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import ConformanceRun, run_conformance
from compaction_kit.session import SeededSession, Turn, build_seeded_session

from app.cli.service_process import running_service
from app.core.compaction.policy import SummarizerPolicy
from app.core.contents import Text
from app.core.events import Event, Events
from app.core.lanes import ROOT_LANE
from app.core.tokens import part_tokens
from app.services.summarize_events import summarize_events
from tests.benchmarks.asking import checked
from tests.conftest import SHARED_DIR
from tests.fakes import canaries, held_out_canaries
from tests.fakes.canaries import Canary, surviving
from tests.planting import FAMILIES, ROUNDS, TOKENS, in_rounds, planted, recorded, tokens_of

#: Sessions of each generator, and those of the kit's benchmark.
SEEDS: Final = range(1, 13)
BENCHMARK_SEEDS: Final = range(1, 5)
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
WAIT_MS: Final = 30_000

#: By the kit's name of a type: ours.
KINDS: Final = {
    CanaryType.SAFETY_RULE.value: "rules",
    CanaryType.HARD_CONSTRAINT.value: "constraints",
    CanaryType.FACT.value: "facts",
    CanaryType.GOAL_STATE.value: "state",
    CanaryType.USER_PREFERENCE.value: "preferences",
}
KIT_HEADER: Final = ("sessions of the kit", "budget", *KINDS.values(), "characters", "tokens")
OWN_HEADER: Final = ("statements", "sessions", *KINDS.values(), "tokens")
OWN_SETS: Final = {
    "English": canaries.ENGLISH,
    "Chinese": canaries.CHINESE,
    "English, not tuned on": held_out_canaries.ENGLISH,
    "Chinese, not tuned on": held_out_canaries.CHINESE,
}

Planted: TypeAlias = tuple[SeededSession, list[KitCanary]]


class Folding:
    """A compactor of the kit: a session that is folded once a round."""

    name = "foldline-extractive"

    def __init__(self) -> None:
        self._has_folded = False

    def compact(
        self, turns: list[Turn], round_num: int = 1, budget_chars: int | None = None
    ) -> CompactedContext:
        """Fold, and again for less while it is longer than the budget."""
        # From the second round on the kit hands over what it was given; the session has it.
        self.append(GOES_ON if self._has_folded else tuple(turns))
        self._has_folded = True
        text = self.fold(None)
        tokens = int((budget_chars or 0) / CHARACTERS_PER_TOKEN)
        while budget_chars is not None and len(text) > budget_chars:
            text = self.fold_again(tokens)
            tokens = int(tokens * SHORTER)
        self.keep(text)
        return CompactedContext(text, self.name, round_num)

    def append(self, turns: tuple[Turn, ...]) -> None:
        """Let the session go on."""
        raise NotImplementedError

    def fold(self, max_output_tokens: int | None) -> str:
        """Return what is read after a fold."""
        raise NotImplementedError

    def fold_again(self, max_output_tokens: int) -> str:
        """Return what is read when the last fold is made anew."""
        return self.fold(max_output_tokens)

    def keep(self, text: str) -> None:
        """Note what the round ends with."""


class Alone(Folding):
    """The summarizer without a service."""

    def __init__(self) -> None:
        super().__init__()
        self._seq = 0
        self._events: Events = ()
        self._seed: str | None = None

    def append(self, turns: tuple[Turn, ...]) -> None:
        """Take the turns for the next fold."""
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
        """Return the section."""
        policy = SummarizerPolicy(max_output_tokens=max_output_tokens)
        return _section(self._events, self._seed, policy)

    def keep(self, text: str) -> None:
        """Take the section as the next one's seed."""
        self._seed = text


def _section(events: Events, seed: str | None, policy: SummarizerPolicy | None = None) -> str:
    summary = asyncio.run(
        summarize_events(
            events,
            seed=seed,
            lane=ROOT_LANE,
            policy=policy or SummarizerPolicy(),
            provider=None,
            counter=TOKENS,
        )
    )
    return summary.text


class OverHttp(Folding):
    """A session of the service; its worker folds it."""

    sessions = 0

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        OverHttp.sessions += 1
        self._client = client
        self._path = f"/v1/sessions/kit-{OverHttp.sessions}"
        self._invocation = 0
        self._fold_seq = 0
        policy = {"compaction": {"strategy": "none"}}
        body = {"app_name": "kit", "user_id": "user", "policy": policy}
        checked(client.put(self._path, json=body))

    def append(self, turns: tuple[Turn, ...]) -> None:
        """Append the turns as events."""
        events = [self._event(turn) for turn in turns]
        checked(self._client.post(f"{self._path}/events", json={"events": events}))

    def _event(self, turn: Turn) -> dict[str, Any]:
        is_model = turn.role == "assistant"
        self._invocation += not is_model
        content = {"role": "model" if is_model else "user", "parts": [{"text": turn.text}]}
        author = "agent" if is_model else "user"
        return {"author": author, "content": content, "invocation_id": f"i{self._invocation}"}

    def fold(self, max_output_tokens: int | None) -> str:
        """Fold everything there is, and return the request that is compiled then."""
        summarizer: dict[str, Any] = {"kind": "extractive"}
        if max_output_tokens is not None:
            summarizer["max_output_tokens"] = max_output_tokens
        body = {
            "mode": "range",
            "from_seq": 1,
            "to_seq": checked(self._client.get(self._path))["head_seq"],
            "summarizer": summarizer,
            "wait_ms": WAIT_MS,
        }
        self._fold_seq = checked(self._client.post(f"{self._path}/compactions", json=body))["seq"]
        compiled = self._client.post(f"{self._path}/compile", json={"format": "openai_chat"})
        messages = checked(compiled)["request"]["messages"]
        return "\n".join(message["content"] for message in messages)

    def fold_again(self, max_output_tokens: int) -> str:
        """Undo the last fold first, so that its section is not the seed."""
        checked(self._client.post(f"{self._path}/compactions/{self._fold_seq}/undo"))
        return self.fold(max_output_tokens)


# Running the kit


@dataclass(frozen=True, slots=True)
class KitRow:
    """Sessions of one generator, at one budget."""

    name: str
    sessions: tuple[Planted, ...]
    #: Part of the session's characters; None for ours.
    budget: float | None = None


def kit_rows() -> Iterator[KitRow]:
    """Yield what the first table has, in its order."""
    yield KitRow("seeded", ((build_seeded_session(), seeded_canaries()),))
    yield KitRow("corpus", tuple(build_random_session(seed) for seed in SEEDS))
    yield KitRow("generated", tuple(build_generated_session(seed) for seed in SEEDS))
    benchmark = tuple(build_random_session(seed) for seed in BENCHMARK_SEEDS)
    for budget in sorted(DEFAULT_BUDGETS, reverse=True):
        yield KitRow("benchmark", benchmark, budget)


def runs_of(row: KitRow, compactor: Callable[[], Folding]) -> list[ConformanceRun]:
    """Have every session of a row folded five times."""
    return [
        run_conformance(
            session, compactor(), rounds=ROUNDS, canaries=planted, budget_fraction=row.budget
        )
        for session, planted in row.sessions
    ]


def lowest(runs: Sequence[ConformanceRun]) -> dict[str, float]:
    """Return what part of each kind survived where it survived least."""
    return {
        kind: min(one.survival_by_type.get(kind, 1.0) for run in runs for one in run.rounds)
        for kind in KINDS
    }


def characters_left(run: ConformanceRun) -> float:
    """Return the last section as a part of all that it stands for, in characters."""
    more = sum(len(turn.text) for turn in GOES_ON)
    covered = int(run.rounds[0].input_chars) + (ROUNDS - 1) * more
    return float(run.rounds[-1].output_chars) / covered


def tokens_left(run: ConformanceRun, session: SeededSession) -> float:
    """Return the same in tokens."""
    covered = sum(TOKENS.count(turn.text) for turn in session.turns)
    covered += (ROUNDS - 1) * sum(TOKENS.count(turn.text) for turn in GOES_ON)
    return TOKENS.count(run.rounds[-1].context.text) / covered


def kit_cells(row: KitRow, runs: Sequence[ConformanceRun]) -> list[str]:
    """Return a row of the first table."""
    assert all(one.within_budget for run in runs for one in run.rounds)
    tokens = [
        tokens_left(run, session) for run, (session, _) in zip(runs, row.sessions, strict=True)
    ]
    return [
        f"{len(row.sessions)} {row.name}",
        "ours" if row.budget is None else f"{row.budget:.0%}",
        *(f"{share:.0%}" for share in lowest(runs).values()),
        f"{statistics.median(characters_left(run) for run in runs):.0%}",
        f"{statistics.median(tokens):.0%}",
    ]


# Our own statements


def own_cells(name: str, told: Sequence[Canary], data: Path) -> list[str]:
    """Return a row of the second table."""
    left: list[float] = []
    kept: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for read in FAMILIES:
        for _, events in recorded(read, data):
            seed: str | None = None
            before, so_far = 0, 0
            for covered in in_rounds(planted(events, told)):
                seed = _section(covered, seed)
                before += tokens_of(covered)
                so_far += sum(any(_tells(event, one) for event in covered) for one in told)
            assert so_far == len(told)
            assert seed is not None
            left.append(TOKENS.count(seed) / before)
            asked.update(one.kind for one in told)
            kept.update(one.kind for one in surviving(tuple(told), seed))
    kinds = ("rule", "constraint", "fact", "state", "preference")
    shares = [f"{kept[kind] / asked[kind]:.0%}" for kind in kinds]
    return [f"{len(told)} {name}", str(len(left)), *shares, f"{statistics.median(left):.0%}"]


def _tells(event: Event, canary: Canary) -> bool:
    return any(isinstance(part, Text) and part.text == canary.text for part in event.parts)


# Printing


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, words on the left and figures on the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="What survives five rolling folds.")
    parser.add_argument("--data", type=Path, default=SHARED_DIR / "data")
    data: Path = parser.parse_args().data
    with running_service() as url, httpx.Client(base_url=url, timeout=WAIT_MS / 1000) as client:
        kit = [kit_cells(row, runs_of(row, lambda: OverHttp(client))) for row in kit_rows()]
    print(markdown(KIT_HEADER, kit))
    print()
    if not data.is_dir():
        print(f"no recorded sessions in {data}; name their folder with --data")
        return 1
    own = [own_cells(name, told, data) for name, told in OWN_SETS.items()]
    print(markdown(OWN_HEADER, own))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
