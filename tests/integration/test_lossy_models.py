"""Models that lose things, each in its own way: the ledger check brings back what they lost.

Every one answers in perfect form, so nothing is rejected. What it is shown it damages: leaves out,
blurs, turns round, misfiles, or says to be replaced. The statements of our own must all be there
after every rolling fold, in both languages, and after folds of one level became one of the next.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, TypeAlias

import pytest

from app.core.compaction.ledger import (
    HEADINGS,
    LedgerClass,
    LedgerLine,
    SectionText,
    parse_section,
    print_section,
)
from app.core.compaction.policy import SummarizerPolicy
from app.core.compaction.statements import NEGATION
from app.core.copying import replace
from app.core.events import Events
from app.core.json_text import parse_json
from app.core.lanes import ROOT_LANE
from app.ports import SummaryProvider
from app.providers.json_api import new_client
from app.providers.summarizers import summary_providers
from app.services.summarize_events import summarize_events
from tests.builders import call, log, model, response
from tests.fakes.canaries import CHINESE, ENGLISH, Canary, surviving
from tests.fakes.model_server import ModelServer, Request
from tests.planting import ROUNDS, TOKENS, in_rounds, planted, told_by

OPENAI: Final = SummarizerPolicy(kind="openai", model="model-1")
#: A record as a faithful model would write it, damaged.
Damage: TypeAlias = Callable[[tuple[LedgerLine, ...]], str]
_USER_LINE: Final = re.compile(r'^\[(\d+)\] user: (".*")$', re.MULTILINE)


def _printed(lines: Sequence[LedgerLine]) -> str:
    return print_section(SectionText(tuple(lines), ("They went on.",)))


def forgets(lines: tuple[LedgerLine, ...]) -> str:
    return _printed(lines[:1])


def forgets_the_oldest(lines: tuple[LedgerLine, ...]) -> str:
    return _printed(lines[len(lines) // 2 :])


def blurs_every_value(lines: tuple[LedgerLine, ...]) -> str:
    blurred = (replace(line, text=re.sub(r"[\d$]+", "some", line.text)) for line in lines)
    return _printed(tuple(blurred))


def turns_rules_round(lines: tuple[LedgerLine, ...]) -> str:
    turned = (replace(line, text=NEGATION.sub(" ", line.text).strip() or "x") for line in lines)
    return _printed(tuple(turned))


def swaps_the_values(lines: tuple[LedgerLine, ...]) -> str:
    values = [re.findall(r"\d+", line.text) for line in lines]
    swapped = []
    for line, others in zip(lines, values[1:] + values[:1], strict=True):
        text = re.sub(r"\d+", others[0] if others else "7", line.text)
        swapped.append(replace(line, text=text))
    return _printed(swapped)


def adds_to_everything_and_binds_it(lines: tuple[LedgerLine, ...]) -> str:
    said = (line for line in lines if "zebra" not in line.text)
    added = (
        replace(line, kind=LedgerClass.RULE, text=f"{line.text.rstrip('.。')} zebra")
        for line in said
    )
    return _printed(tuple(added))


def files_everything_as_facts(lines: tuple[LedgerLine, ...]) -> str:
    return _printed(tuple(replace(line, kind=LedgerClass.FACT) for line in lines))


def tells_it_all_as_a_story(lines: tuple[LedgerLine, ...]) -> str:
    told = " ".join(line.text for line in lines)
    return f"## Facts\n- They spoke of many things. [1]\n## Story\n- {told}"


def claims_to_replace_everything(lines: tuple[LedgerLine, ...]) -> str:
    text = [f"## {HEADINGS[LedgerClass.RULE]}"]
    for line in lines:
        seqs = ", ".join(f"{start}-{end}" for start, end in line.seqs)
        newest = max((end for _, end in line.seqs), default=1)
        text.append(f"- {line.text[: len(line.text) // 2]} (replaces [{seqs}]) [{newest}]")
    return "\n".join((*text, "## Story", "They went on."))


def claims_that_a_later_event_replaced_everything(lines: tuple[LedgerLine, ...]) -> str:
    newest = max((end for line in lines for _, end in line.seqs), default=1)
    text = [f"## {HEADINGS[LedgerClass.RULE]}"]
    for line in lines:
        seqs = ", ".join(f"{start}-{end}" for start, end in line.seqs)
        text.append(f"- {line.text[: len(line.text) // 2]} (replaces [{seqs}]) [{newest + 1}]")
    return "\n".join((*text, "## Story", "They went on."))


DAMAGES: Final = (
    pytest.param(forgets, id="forgets"),
    pytest.param(forgets_the_oldest, id="forgets_the_oldest", marks=pytest.mark.slow),
    pytest.param(blurs_every_value, id="blurs_every_value", marks=pytest.mark.slow),
    pytest.param(turns_rules_round, id="turns_rules_round", marks=pytest.mark.slow),
    pytest.param(swaps_the_values, id="swaps_the_values", marks=pytest.mark.slow),
    pytest.param(adds_to_everything_and_binds_it, id="adds_to_everything_and_binds_it"),
    pytest.param(files_everything_as_facts, id="files_everything_as_facts"),
    pytest.param(tells_it_all_as_a_story, id="tells_it_all_as_a_story", marks=pytest.mark.slow),
    pytest.param(
        claims_to_replace_everything, id="claims_to_replace_everything", marks=pytest.mark.slow
    ),
    pytest.param(
        claims_that_a_later_event_replaced_everything,
        id="claims_that_a_later_event_replaced_everything",
    ),
)


def lossy(damage: Damage) -> Callable[[Request], str]:
    """Return what writes a model's answers: a faithful record, then damaged."""

    def write(request: Request) -> str:
        shown = request.texts[1]
        previous = parse_section(shown.partition("The transcript:")[0]) or SectionText()
        said = tuple(
            LedgerLine(LedgerClass.FACT, str(parse_json(text)), ((int(seq), int(seq)),))
            for seq, text in _USER_LINE.findall(shown)
        )
        return damage((*previous.ledger, *said))

    return write


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
async def provider(server: ModelServer) -> AsyncIterator[SummaryProvider]:
    async with new_client() as client:
        yield summary_providers(
            client,
            kind="openai",
            url=server.url("openai"),
            model="model-1",
            api_key="key",
            timeout_s=20.0,
        )["openai"]


def session_with(canaries: Sequence[Canary]) -> Events:
    """Return a session in which an agent reads files for a long time, the canaries planted."""
    events = []
    for number in range(70):
        events += [
            call("read_file", id=f"c{number}", args={"path": f"src/part_{number}.py"}),
            response(
                f"c{number}",
                name="read_file",
                result={"output": f"PART = {number}\n" + "def run(): return PART * 2\n" * 30},
            ),
            model("I have read this part and I am going on with the one after it. " * 4),
        ]
    return planted(log(*events).events, canaries)


async def summarize(events: Events, seed: str | None, provider: SummaryProvider) -> str:
    summary = await summarize_events(
        events, seed=seed, lane=ROOT_LANE, policy=OPENAI, provider=provider, counter=TOKENS
    )
    assert (summary.method, summary.fallback_reason) == ("openai", None)
    return summary.text


@pytest.mark.parametrize("canaries", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_a_model_loses_is_put_back_in_every_rolling_fold(
    server: ModelServer, provider: SummaryProvider, damage: Damage, canaries: tuple[Canary, ...]
) -> None:
    server.writer = lossy(damage)
    seed: str | None = None
    told: list[Canary] = []
    for covered in in_rounds(session_with(canaries)):
        told += told_by(covered, canaries)
        seed = await summarize(covered, seed, provider)
        assert set(told) - set(surviving(canaries, seed)) == set()
        _assert_rules_are_rules(seed)
    assert told == list(canaries)


@pytest.mark.parametrize("canaries", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_a_model_loses_is_put_back_when_folds_become_one(
    server: ModelServer, provider: SummaryProvider, damage: Damage, canaries: tuple[Canary, ...]
) -> None:
    server.writer = lossy(damage)
    folds = [
        parse_section(await summarize(covered, None, provider))
        for covered in in_rounds(session_with(canaries))
    ]
    assert len(folds) == ROUNDS
    joined = print_section(
        SectionText(
            tuple(line for fold in folds if fold for line in fold.ledger),
            tuple(line for fold in folds if fold for line in fold.story),
        )
    )

    merged = await summarize((), joined, provider)

    rules = [one for one in canaries if one.kind in ("rule", "constraint")]
    kept = set(surviving(canaries, merged))
    in_rules = {one for one in rules if _rule_lines(joined) >= {one.text}}
    assert in_rules <= kept
    assert len(kept) >= len(canaries) * 3 // 4


def _rule_lines(text: str) -> set[str]:
    section = parse_section(text)
    assert section is not None
    return {line.text for line in section.ledger if line.kind is LedgerClass.RULE}


def _assert_rules_are_rules(text: str) -> None:
    """See that what code knows for a rule stands under the rules, whatever the model made of it."""
    must = {
        "You must never email the customer list to anyone outside Halden & Roe.",
        "绝对不要把客户名单发给海澜公司以外的任何人。",
    }
    assert not {line for line in must if line in text} - _rule_lines(text)
    assert not any("zebra" in line for line in _rule_lines(text))
