"""What requests cost, in figures that do not depend on the machine.

Statements, rows and characters read, bodies decoded, and memory. `make bench` has the times.
"""

import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from app.core.compile.inputs import CompileInput, CompileOptions
from app.core.compile.pipeline import run_pipeline
from app.core.lanes import Reader
from app.core.resolve import Log, replay
from app.formats import FORMATS
from app.storage import connection as storage_connection
from app.storage import live_read
from app.storage.codec import unpack_event
from app.storage.query_names import query_names
from tests.api.conftest import Api, call, client_of, model, response, settings_for, user
from tests.builders import model as model_event
from tests.builders import user as user_event

LIVE: Final = 40
BODY: Final = {"agent": "agent", "format": "gemini"}
#: Written behind an answer, so that the same compile can be asked for again and reported of: when
#: that happens depends on the machine.
BEHIND: Final = ("compile_inputs.", "token_reports.remember", "SET LOCAL")
#: A position has a digit more or less.
DIGITS: Final = 0.02


@dataclass
class Spent:
    """What was spent since it was cleared."""

    statements: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    characters: int = 0
    bodies: int = 0

    def clear(self) -> None:
        """Begin anew."""
        self.statements.clear()
        self.rows = self.characters = self.bodies = 0


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> Spent:
    """What the service in this process spends."""
    found = Spent()
    names = query_names()
    # All statements come by here.
    fetched = storage_connection._fetch  # noqa: SLF001

    async def counted(connection: Any, sql: Any, args: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await fetched(connection, sql, args)
        name = names.get(sql, sql)
        if not name.startswith(BEHIND):
            found.statements[name] += 1
            found.rows += len(rows)
            found.characters += sum(len(str(value)) for row in rows for value in row.values())
        return rows

    def decoded(*args: Any) -> Any:
        found.bodies += 1
        return unpack_event(*args)

    monkeypatch.setattr(storage_connection, "_fetch", counted)
    monkeypatch.setattr(live_read, "unpack_event", decoded)
    return found


@pytest.fixture
async def forgetful(database_url: str) -> AsyncIterator[Api]:
    """A service that keeps nothing from compile to compile."""
    async with client_of(settings_for(database_url, compile_cache_bytes=0)) as client:
        yield Api(client)


async def a_session(api: Api, masked: int) -> str:
    """Return a session with so many events behind a summary, and the live ones."""
    path = await api.session(policy={"compaction": {"strategy": "none"}})
    if masked:
        await api.append(path, *turns("old", masked))
        covers = {"from_seq": 1, "to_seq": masked}
        folded = await api.post(f"{path}/summaries", {"covers": covers, "content": "It went well."})
        assert folded.status_code == 201
    await api.append(path, *turns("new", LIVE))
    return path


def turns(name: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield so many events, half of them answers."""
    for number in range(count // 2):
        yield user(f"{name} question {number}")
        yield model(f"{name} answer {number}")


async def compiled(api: Api, path: str) -> None:
    answer = await api.post(f"{path}/compile", BODY)
    assert answer.status_code == 200


@pytest.mark.parametrize("masked", [0, 400])
async def test_a_warm_compile_reads_what_is_new(api: Api, spent: Spent, masked: int) -> None:
    path = await a_session(api, masked)
    await compiled(api, path)
    await api.append(path, user("one more"))
    spent.clear()

    await compiled(api, path)

    assert spent.statements == {"live_read.read_live": 1}
    # The newest reply and what follows it; beside them the session, its lane and the policy.
    assert spent.bodies == 2
    assert spent.rows == 2 + 3


async def test_a_cold_compile_reads_what_is_live_whatever_is_masked(
    forgetful: Api, spent: Spent
) -> None:
    characters: list[int] = []
    for masked, folds in ((0, 0), (200, 1), (400, 1)):
        path = await a_session(forgetful, masked)
        spent.clear()
        await compiled(forgetful, path)
        assert spent.statements == {"live_read.read_live": 1}
        assert spent.bodies == LIVE + folds
        assert spent.rows == LIVE + folds + 3
        characters.append(spent.characters)

    assert characters[2] == pytest.approx(characters[1], rel=DIGITS)


async def test_a_live_result_of_a_masked_call_alone_costs_a_second_statement(
    forgetful: Api, spent: Spent
) -> None:
    path = await forgetful.session(policy={"compaction": {"strategy": "none"}})
    await forgetful.append(path, user("find it"), call("find", "c1"), response("find", "c1"))
    await compiled(forgetful, path)
    assert "live_read.read_masked" not in spent.statements

    fold = await forgetful.post(
        f"{path}/summaries", {"covers": {"from_seq": 1, "to_seq": 2}, "content": "It was asked."}
    )
    assert fold.status_code == 201, fold.text
    await compiled(forgetful, path)
    assert spent.statements["live_read.read_masked"] == 1


async def test_an_append_is_one_statement_whatever_the_size_of_the_batch(
    api: Api, spent: Spent
) -> None:
    path = await a_session(api, 0)
    await api.append(path, user("now it is known where the log stands"))
    for count in (1, 10, 100):
        spent.clear()
        await api.append(path, *(user(f"{number} of {count}") for number in range(count)))
        assert spent.statements == {"insert_events.insert": 1}


async def test_results_look_for_their_calls_together(api: Api, spent: Spent) -> None:
    path = await a_session(api, 0)
    costs: list[int] = []
    for count in (1, 10):
        await api.append(path, *(call("look", f"c{count}-{n}") for n in range(count)))
        spent.clear()
        await api.append(path, *(response("look", f"c{count}-{n}") for n in range(count)))
        costs.append(spent.statements.total())

    assert costs[0] == costs[1] <= 3


async def test_an_append_and_compile_in_one_request_are_two_statements(
    api: Api, spent: Spent
) -> None:
    path = await a_session(api, 0)
    await compiled(api, path)
    await api.append(path, user("now it is known where the log stands"))
    spent.clear()

    answer = await api.post(f"{path}/compile", {**BODY, "append": [user("and now?")]})

    assert answer.status_code == 200
    assert spent.statements.total() == 2


# Memory


def _peak_bytes(log: Log) -> int:
    inputs = CompileInput(
        options=CompileOptions(reader=Reader(agent="agent")),
        format=FORMATS["gemini"],
        index=log.index,
        compiled_seq=len(log.events),
    )
    run_pipeline(log.events, inputs)
    tracemalloc.start()
    try:
        run_pipeline(log.events, inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _log(count: int) -> Iterator[Any]:
    for number in range(count // 2):
        yield user_event(f"question {number}")
        yield model_event(f"answer {number}")


def test_what_a_compile_allocates_follows_the_events() -> None:
    peaks = {count: _peak_bytes(replay(_log(count))) for count in (100, 200, 400, 800)}

    # As much for each event, however many there are, and no more than some objects.
    for count in (200, 400, 800):
        assert peaks[count] / count < 1.1 * peaks[100] / 100
    assert peaks[800] / 800 < 2_500
