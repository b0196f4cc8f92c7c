"""Searching originals: what is searched of every kind of part, and what ends a search."""

import asyncpg
import pytest

from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    InlineData,
    Opaque,
    Part,
    Text,
)
from app.core.errors import InvalidInputError, StorageUnavailableError
from app.core.lanes import Reader
from app.core.ranges import Ranges
from app.core.recall import least_matches, terms_of
from app.ports import SearchQuery, SearchResult, SessionKey
from app.storage import event_search
from app.storage.connection import fetch_one
from app.storage.database import PgDatabase
from app.storage.event_search import PgEventSearch
from tests.builders import event, model, user
from tests.log_driver import append, new_session

ALL: Ranges = ((1, 1_000),)


async def search(
    database: PgDatabase,
    key: SessionKey,
    text: str,
    *,
    is_pattern: bool = False,
    limit: int = 10,
    timeout_s: float = 5.0,
    reader: Reader | None = None,
) -> SearchResult:
    """Search everything."""
    terms = () if is_pattern else terms_of(text)
    query = SearchQuery(
        ranges=ALL,
        reader=reader,
        limit=limit,
        text=text,
        terms=terms,
        least_matches=least_matches(len(terms)),
    )
    async with database.snapshot() as connection:
        return await PgEventSearch().search(connection, key, query, timeout_s=timeout_s)


def seqs(result: SearchResult) -> list[int]:
    """Return where the hits stand."""
    return [hit.seq for hit in result.hits]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Text(text="a needle"), "text"),
        (Text(text="a needle", signature="sig", signed_by="gemini"), "text"),
        (FunctionCall(id="c", name="needle", args="{}"), "function_call"),
        (FunctionCall(id="c", name="f", args='{"q":"needle"}', args_text="{}"), "function_call"),
        (FunctionResponse(id="c", name="f", response='{"q":"needle"}'), "function_response"),
        (
            FunctionResponse(id="c", name="f", response="{}", response_text="needle"),
            "function_response",
        ),
        (InlineData(mime_type="image/png", data="", display_name="needle.png"), "inline_data"),
        (FileData(file_uri="gs://needle"), "file_data"),
        (FileData(file_uri="gs://x", display_name="needle"), "file_data"),
        (ExecutableCode(code="needle()", language="PYTHON"), "executable_code"),
        (CodeExecutionResult(outcome="OK", output="needle"), "code_execution_result"),
        (Opaque(provider="anthropic", type="x", raw="{}", text="needle"), "opaque"),
    ],
    ids=repr,
)
async def test_what_every_part_says_is_searched(
    database: PgDatabase, part: Part, kind: str
) -> None:
    key = await new_session(database)
    await append(database, key, model("other"), event(part, author="bot"))
    for is_pattern in (False, True):
        result = await search(database, key, "needle", is_pattern=is_pattern)
        assert [(hit.seq, hit.kind) for hit in result.hits] == [(2, kind)]
        assert "needle" in result.hits[0].snippet


@pytest.mark.parametrize(
    "part",
    [
        Text(text="needle", thought=True),
        Text(text="needle", thought=True, signature="sig"),
        InlineData(mime_type="image/png", data="needle00"),
        Opaque(provider="anthropic", type="x", raw='{"a":"needle"}'),
    ],
    ids=repr,
)
async def test_thoughts_media_and_opaque_blocks_are_not_searched(
    database: PgDatabase, part: Part
) -> None:
    key = await new_session(database)
    await append(database, key, event(part, author="bot"))
    assert (await search(database, key, "needle")).hits == ()
    assert (await search(database, key, "needle", is_pattern=True)).hits == ()


async def test_transcriptions_are_searched(database: PgDatabase) -> None:
    key = await new_session(database)
    heard = event(author="user", input_transcription="a needle", role=None)
    await append(database, key, heard)
    (hit,) = (await search(database, key, "needle")).hits
    assert hit.kind == "transcription"


async def test_a_snippet_shows_what_was_found_within_a_long_text(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("x" * 5_000 + " needle " + "y" * 5_000))
    for is_pattern in (False, True):
        (hit,) = (await search(database, key, "needle", is_pattern=is_pattern)).hits
        assert " needle " in hit.snippet
        assert len(hit.snippet) == 240


async def test_hits_of_several_chunks_are_merged_best_first(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "CHUNK_EVENTS", 2)
    key = await new_session(database)
    said = ("red blue", "red", "none", "red", "none", "red", "none")
    await append(database, key, *map(user, said))
    result = await search(database, key, "red blue", limit=3)
    assert seqs(result) == [1, 6, 4]
    # The one at 2 is left out.
    assert not result.is_complete
    assert (await search(database, key, "red blue", limit=4)).is_complete


async def test_time_that_runs_out_leaves_what_was_found_and_where_it_ended(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "CHUNK_EVENTS", 2)
    key = await new_session(database)
    await append(database, key, *(user("red blue") for _ in range(6)))
    ticks = iter((0.0, 0.0, 99.0))
    query = SearchQuery(ranges=((1, 6),), reader=None, limit=10, text="red", terms=("red",))
    async with database.snapshot() as connection:
        search = PgEventSearch(lambda: next(ticks)).search
        result = await search(connection, key, query, timeout_s=5.0)
    assert seqs(result) == [6, 5]
    assert (result.is_complete, result.searched_from_seq) == (False, 5)


#: Back references make the engine try every way to split the text.
SLOW_PATTERN = r"^(a*)(a*)(a*)(a*)x\1\2\3\4y$"


async def test_a_pattern_that_takes_too_long_is_ended_and_named(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("a" * 300 + "x" + "a" * 301 + "y"))
    with pytest.raises(InvalidInputError) as caught:
        await search(database, key, SLOW_PATTERN, is_pattern=True, timeout_s=0.3)
    assert caught.value.pointer == "/query"
    # The connection serves the next one.
    assert seqs(await search(database, key, "aaa", is_pattern=True)) == [1]


async def test_the_time_limit_of_a_search_ends_with_it(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("one"))
    async with database.connection() as connection:
        before = await fetch_one(connection, "SELECT current_setting('statement_timeout') AS t")
    await search(database, key, "one", timeout_s=0.5)
    async with database.connection() as connection:
        after = await fetch_one(connection, "SELECT current_setting('statement_timeout') AS t")
    assert before is not None
    assert after is not None
    assert after["t"] == before["t"]


async def test_words_without_any_time_are_no_fault_of_the_query(database: PgDatabase) -> None:
    key = await new_session(database)
    await append(database, key, user("one"))
    with pytest.raises(StorageUnavailableError):
        await search(database, key, "one", timeout_s=0.0)


async def test_a_pattern_beyond_the_engine_is_refused_before_anything_is_read(
    database: PgDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(event_search, "_search", read)
    key = await new_session(database)
    for pattern in ("(", "(?<n>a)", "x" * 10 + "{1,255}" * 3):
        with pytest.raises(InvalidInputError):
            await search(database, key, pattern, is_pattern=True)


def test_the_driver_names_the_errors_that_are_told_apart() -> None:
    assert asyncpg.InvalidRegularExpressionError.sqlstate == "2201B"
    assert asyncpg.QueryCanceledError.sqlstate == "57014"
