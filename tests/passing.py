"""A log taken through the pipeline up to one pass, in memory."""

from dataclasses import dataclass
from typing import Any

from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult, Report
from app.core.compile.lower import lower
from app.core.compile.pipeline import CONTENT_PASSES, EVENT_PASSES, Pass
from app.core.contents import Contents, Segment
from app.core.copying import replace
from app.core.events import Events
from app.core.lanes import Reader
from app.core.printing import content_line, print_events
from app.core.resolve import Log
from app.formats import FORMATS
from tests.builders import AGENT

BOT = Reader(agent=AGENT)


@dataclass(frozen=True)
class Passed:
    """What a pass gave, and everything reported up to there."""

    items: Events | Contents
    report: Report

    @property
    def events(self) -> list[str]:
        """The events as lines."""
        assert all(not hasattr(item, "response_seq") for item in self.items)
        return print_events(self.items)  # type: ignore[arg-type]

    @property
    def turns(self) -> list[str]:
        """The contents as lines."""
        return [content_line(item) for item in self.items]  # type: ignore[arg-type]

    @property
    def repairs(self) -> list[tuple[str, int | None]]:
        """Rule and seq of each repair."""
        return [(repair.rule, repair.seq) for repair in self.report.repairs]

    @property
    def pending(self) -> list[tuple[str | None, int]]:
        """Id and seq of each call that may still be answered."""
        return [(call.call_id, call.seq) for call in self.report.pending]


def turns_of(result: CompileResult) -> list[str]:
    """Return what is sent as lines: roles, seqs and parts, nothing about where they belong."""
    return [
        content_line(
            replace(
                rendered.content,
                parts=tuple(
                    replace(placed, segment=Segment.HISTORY) for placed in rendered.content.parts
                ),
                ends_prefix=False,
            )
        )
        for rendered in result.rendered
    ]


def inputs_of(
    log: Log, *, reader: Reader = BOT, format_name: str = "anthropic", **options: Any
) -> CompileInput:
    """Return what a log is compiled with."""
    return CompileInput(
        options=CompileOptions(reader=reader, **options),
        format=FORMATS[format_name],
        index=log.index,
        compiled_seq=len(log.events),
    )


def through(pass_name: str, log: Log, **options: Any) -> Passed:
    """Run the pipeline up to and with the named pass.

    Args:
        options: ``reader``, ``format_name``, and any of :class:`CompileOptions`.
    """
    inputs, report = inputs_of(log, **options), Report()
    items: Events | Contents = log.events
    for step in (*EVENT_PASSES, Pass("lower", lower), *CONTENT_PASSES):
        items = step.run(items, inputs, report)
        if step.name == pass_name:
            return Passed(items, report)
    raise LookupError(pass_name)
