"""Turns of the writers of one session: one at a time, in order, and those who wait as one."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from app.core.errors import LockTimeoutError
from app.services import take_turns
from app.services.take_turns import TakeTurns

MOST: Final = 4


class Log:
    """What is written to; works are words, and at most four of them are one."""

    def __init__(self) -> None:
        self.turns: TakeTurns[str, str, str] = TakeTurns(
            self._together, fit_together=lambda works: len(works) <= MOST
        )
        self.written: list[str] = []
        #: What was written at once.
        self.together: list[list[str]] = []
        self.is_busy = False
        self.at_work = asyncio.Event()
        self.at_work.set()
        self.steps: Callable[[], int] = lambda: 1
        self.refuses: Callable[[Sequence[str]], Exception | bool] = lambda _: False

    async def write(self, work: str, *, alone: bool = False) -> str:
        """Write a word in its turn."""
        async with self.turns.turn("log", None if alone else work) as turn:
            if turn.done is not None:
                return turn.done
            await self._work([work])
            return f"{work} alone"

    async def _together(self, key: str, works: Sequence[str]) -> Sequence[str] | None:
        assert key == "log"
        refused = self.refuses(works)
        await self._work([] if refused else list(works))
        if isinstance(refused, Exception):
            raise refused
        return None if refused else [f"{work} together" for work in works]

    async def _work(self, works: list[str]) -> None:
        assert not self.is_busy, "two at once"
        self.is_busy = True
        try:
            await self.at_work.wait()
            for _ in range(self.steps()):
                await asyncio.sleep(0)
            self.written += works
            self.together.append(works)
        finally:
            self.is_busy = False

    async def held(self, words: str, *, refused: bool = False) -> list[asyncio.Task[str]]:
        """Have words written as one until :attr:`at_work` is set, and return their writers."""
        first = await self.hold()
        others = [await begun(self.write(word)) for word in words]

        has_begun = asyncio.Event()

        def stop(_: Sequence[str]) -> bool:
            self.at_work.clear()
            has_begun.set()
            return refused

        self.refuses = stop
        self.at_work.set()
        await first
        await has_begun.wait()
        return others

    async def hold(self) -> asyncio.Task[str]:
        """Have somebody write until :attr:`at_work` is set."""
        self.at_work.clear()
        return await begun(self.write("first"))


async def begun(writing: Any) -> asyncio.Task[str]:
    """Have somebody come, and return once it waits."""
    task = asyncio.create_task(writing)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_who_comes_while_another_writes_is_taken_along_in_order() -> None:
    log = Log()
    first = await log.hold()
    others = [await begun(log.write(word)) for word in "abc"]
    log.at_work.set()

    assert await first == "first alone"
    assert await asyncio.gather(*others) == ["a together", "b together", "c together"]
    assert log.together == [["first"], ["a", "b", "c"]]


async def test_one_that_waits_has_a_turn_of_its_own() -> None:
    log = Log()
    await log.hold()
    other = await begun(log.write("a"))
    log.at_work.set()

    assert await other == "a alone"


async def test_who_goes_alone_is_overtaken_by_nobody() -> None:
    log = Log()
    await log.hold()
    others = [await begun(log.write(word, alone=word == "c")) for word in "abcde"]
    log.at_work.set()
    await asyncio.gather(*others)

    assert log.together == [["first"], ["a", "b"], ["c"], ["d", "e"]]


async def test_no_more_are_taken_than_fit() -> None:
    log = Log()
    await log.hold()
    others = [await begun(log.write(word)) for word in "abcdefghi"]
    log.at_work.set()
    await asyncio.gather(*others)

    assert log.together == [["first"], list("abcd"), list("efgh"), ["i"]]


async def test_what_cannot_be_one_has_turns_of_its_own_before_who_came_later() -> None:
    log = Log()
    await log.hold()
    log.refuses = lambda works: "b" in works
    others = [await begun(log.write(word)) for word in "abcdef"]
    log.at_work.set()

    told = await asyncio.gather(*others)

    assert told[:4] == [f"{word} alone" for word in "abcd"]
    assert log.written == ["first", *"abcdef"]


async def test_an_error_is_told_to_all_who_were_one_and_to_nobody_else() -> None:
    log = Log()
    await log.hold()
    log.refuses = lambda works: ConnectionError() if "b" in works else False
    others = [await begun(log.write(word)) for word in "abcdef"]
    log.at_work.set()

    told = await asyncio.gather(*others, return_exceptions=True)

    assert [type(each) for each in told[:4]] == [ConnectionError] * 4
    assert told[4:] == ["e together", "f together"]
    assert await log.write("next") == "next alone"


async def test_who_gives_up_leaves_the_line() -> None:
    log = Log()
    await log.hold()
    others = [await begun(log.write(word)) for word in "abc"]
    others[1].cancel()
    await asyncio.gather(others[1], return_exceptions=True)
    log.at_work.set()

    assert await asyncio.gather(*others[::2]) == ["a together", "c together"]
    assert log.written == ["first", "a", "c"]


async def test_who_gives_up_when_its_turn_has_come_passes_it_on() -> None:
    log = Log()
    first = await log.hold()
    others = [await begun(log.write(word, alone=True)) for word in "ab"]
    first.add_done_callback(lambda _: others[0].cancel())
    log.at_work.set()

    assert await others[1] == "b alone"
    assert others[0].cancelled()
    assert log.written == ["first", "b"]


async def test_who_gives_up_while_it_is_written_takes_nothing_from_others() -> None:
    log = Log()
    others = await log.held("abc")
    others[0].cancel()
    await asyncio.gather(others[0], return_exceptions=True)
    log.at_work.set()

    assert await asyncio.gather(*others[1:]) == ["b together", "c together"]
    # It may have been too late: nobody knows but the log.
    assert log.written == ["first", "a", "b", "c"]
    assert await log.write("next") == "next alone"


async def test_who_gives_up_what_could_not_be_one_holds_nobody_up() -> None:
    log = Log()
    others = await log.held("abc", refused=True)
    others[1].cancel()
    await asyncio.gather(others[1], return_exceptions=True)
    log.at_work.set()

    assert await asyncio.gather(*others[::2]) == ["a alone", "c alone"]
    assert log.written == ["first", "a", "c"]


async def test_who_waits_too_long_is_told_and_written_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(take_turns, "TURN_TIMEOUT_S", 0.05)
    log = Log()
    await log.hold()
    others = [await begun(log.write(word)) for word in "abc"]
    told = await asyncio.gather(*others, return_exceptions=True)
    log.at_work.set()

    assert [type(each) for each in told] == [LockTimeoutError] * 3
    assert await log.write("next") == "next alone"
    assert log.written == ["first", "next"]


async def test_what_is_being_written_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_turns, "TURN_TIMEOUT_S", 0.05)
    log = Log()
    others = await log.held("abc")
    # Long after they could have given up; one does, and takes nothing from the others.
    await asyncio.sleep(0.2)
    others[0].cancel()
    await asyncio.gather(others[0], return_exceptions=True)
    log.at_work.set()

    assert await asyncio.gather(*others[1:]) == ["b together", "c together"]


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_one_writes_at_a_time_and_each_word_once(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  dice
    log = Log()
    log.steps = lambda: dice.choice((1, 2, 9))
    log.refuses = lambda _: dice.choice((False, False, False, True, ConnectionError()))
    tasks: dict[str, asyncio.Task[str]] = {}
    for number in range(60):
        word = f"w{number}"
        tasks[word] = asyncio.create_task(log.write(word, alone=dice.random() < 0.2))
        for _ in range(dice.choice((0, 0, 0, 1, 3, 9))):
            await asyncio.sleep(0)
        if dice.random() < 0.3:
            dice.choice(list(tasks.values())).cancel()

    told = await asyncio.gather(*tasks.values(), return_exceptions=True)
    # What was under way when its last writer gave up comes to its end.
    for _ in range(50):
        await asyncio.sleep(0)

    assert len(log.written) == len(set(log.written))
    for word, said in zip(tasks, told, strict=True):
        if isinstance(said, str):
            assert word in log.written
        elif isinstance(said, ConnectionError):
            assert word not in log.written
        else:
            assert isinstance(said, asyncio.CancelledError)
    own = [int(word[1:]) for word in log.written]
    assert own == sorted(own)
    assert log.turns._lines == {}  # noqa: SLF001
