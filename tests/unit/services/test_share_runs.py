import asyncio

from app.services.share_runs import ShareRuns


class Slow:
    """Counts its runs, and gives what was known when each began."""

    def __init__(self) -> None:
        self.known = 0
        self.runs = 0

    async def __call__(self) -> int:
        self.runs += 1
        began_with = self.known
        await asyncio.sleep(0.02)
        return began_with


async def test_many_who_ask_at_once_share_two_runs() -> None:
    shared: ShareRuns[int] = ShareRuns()
    slow = Slow()

    answers = await asyncio.gather(*(shared("a", slow) for _ in range(50)))

    assert slow.runs == 2
    assert answers == [0] * 50


async def test_nobody_is_given_what_began_before_they_asked() -> None:
    shared: ShareRuns[int] = ShareRuns()
    slow = Slow()

    async def ask() -> bool:
        known = slow.known
        return await shared("a", slow) >= known

    asked = []
    for _ in range(30):
        asked.append(asyncio.create_task(ask()))
        await asyncio.sleep(0.003)
        slow.known += 1

    assert all(await asyncio.gather(*asked))
    assert slow.runs < 30


async def test_different_keys_do_not_wait_for_each_other() -> None:
    shared: ShareRuns[int] = ShareRuns()
    slow = Slow()

    await asyncio.gather(shared("a", slow), shared("b", slow))

    assert slow.runs == 2


async def test_one_who_gives_up_takes_no_answer_away() -> None:
    shared: ShareRuns[int] = ShareRuns()
    slow = Slow()
    first, second, third = (asyncio.create_task(shared("a", slow)) for _ in range(3))
    await asyncio.sleep(0.005)
    first.cancel()
    second.cancel()

    assert await third == 0
    assert slow.runs == 2


async def test_all_are_told_of_an_error_and_the_next_run_is_a_new_one() -> None:
    shared: ShareRuns[int] = ShareRuns()

    async def fails() -> int:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    found = await asyncio.gather(*(shared("a", fails) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError] * 5

    slow = Slow()
    assert await shared("a", slow) == 0
