from uuid import uuid4

from app.core.compile.inputs import CompileOptions, Settled, SettledItems
from app.core.index import UNTOUCHED
from app.ports import ReadBefore
from app.services.settled_compiles import ENTRY_BYTES, Key, SettledCompile, SettledCompiles


def key() -> Key:
    return (uuid4(), CompileOptions(), "gemini")


def compiled(characters: int) -> SettledCompile:
    before = ReadBefore(incarnation=uuid4(), index=UNTOUCHED, index_digest="", after_seq=1)
    settled = Settled(until=(1, 1, 2), items=(SettledItems("x" * characters),))
    return SettledCompile(before=before, rule=None, settled=settled)


def test_what_was_not_used_longest_goes_first() -> None:
    kept = SettledCompiles(max_bytes=3 * ENTRY_BYTES)
    first, second, third = key(), key(), key()
    for each in (first, second):
        kept.keep(each, compiled(100))
    assert kept.find(first) is not None
    kept.keep(third, compiled(100))

    assert kept.find(second) is None
    assert kept.find(first) is not None
    assert kept.find(third) is not None


def test_no_more_is_kept_than_fits() -> None:
    kept = SettledCompiles(max_bytes=10 * ENTRY_BYTES)
    for number in range(50):
        kept.keep(key(), compiled(number * 100))
        assert 0 < kept.size_bytes <= 10 * ENTRY_BYTES


def test_an_entry_larger_than_everything_is_not_kept_and_what_it_replaces_is_gone() -> None:
    kept = SettledCompiles(max_bytes=2 * ENTRY_BYTES)
    one = key()
    kept.keep(one, compiled(1))
    kept.keep(one, compiled(3 * ENTRY_BYTES))

    assert kept.find(one) is None
    assert kept.size_bytes == 0


def test_text_counts_with_the_bytes_that_it_takes() -> None:
    narrow = compiled(1_000)
    chinese = SettledCompile(
        before=narrow.before,
        rule=None,
        settled=Settled(until=(1, 1, 2), items=(SettledItems("\u4e2d" * 1_000),)),
    )

    assert chinese.size_bytes > narrow.size_bytes + 900
