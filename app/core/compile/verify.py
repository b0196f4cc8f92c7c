"""Every invariant of the output, checked on what is sent. Returns all violations, repairs nothing.

What the passes promise whatever the provider: each call answered once, right after its turn and in
order, ids unique, turns alternating and no text blank where the format wants it. What only one
provider asks for is checked by ``validate`` in its format. Runs on everything that the tests build,
and in production when ``VERIFY_COMPILE`` is on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.core.compile.inputs import Format, RenderedContent
from app.core.contents import Content, FunctionCall, calls, is_blank, responses


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant and the index of the content where it shows."""

    invariant: str
    content_index: int


def verify(rendered: Sequence[RenderedContent], wire: Format) -> tuple[Violation, ...]:
    """Return every violation, by position."""
    contents = [content.content for content in rendered]
    found = [*_unanswered(contents, wire), *_ids(contents, wire), *_turns(contents, wire)]
    return tuple(sorted(found, key=lambda violation: violation.content_index))


def _unanswered(contents: Sequence[Content], wire: Format) -> Iterator[Violation]:
    waiting: list[FunctionCall] = []
    for index, content in enumerate(contents):
        parts = [placed.part for placed in content.parts]
        for response in responses(parts):
            if not waiting:
                yield Violation("response_without_call", index)
                continue
            call = waiting.pop(0)
            if (call.id if wire.needs_ids else None) != (response.id if wire.needs_ids else None):
                yield Violation("responses_in_call_order", index)
        if waiting and not responses(parts):
            yield Violation("call_answered_directly", index)
            waiting = []
        if calls(parts):
            waiting.extend(calls(parts))
    if waiting:
        yield Violation("call_answered", len(contents) - 1)


def _ids(contents: Sequence[Content], wire: Format) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, content in enumerate(contents):
        for call in calls(placed.part for placed in content.parts):
            if call.id is None:
                if wire.needs_ids:
                    yield Violation("call_has_id", index)
            elif call.id in seen:
                yield Violation("call_ids_unique", index)
            else:
                seen.add(call.id)


def _turns(contents: Sequence[Content], wire: Format) -> Iterator[Violation]:
    for index, content in enumerate(contents):
        if not content.parts:
            yield Violation("content_not_empty", index)
        if wire.refuses_blank_text and any(is_blank(placed.part) for placed in content.parts):
            yield Violation("text_not_blank", index)
        if wire.needs_alternation and content.role != ("model" if index % 2 else "user"):
            yield Violation("roles_alternate", index)
    if wire.needs_alternation and contents and contents[-1].role != "user":
        yield Violation("last_role_user", len(contents) - 1)
