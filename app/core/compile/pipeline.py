"""The order of the passes, and the one function that runs them.

Events come in, in log order: either all of a log, or only what the index says is live, with the
active folds and the masked calls that live results answer. Both give the same bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from app.core.compile.inputs import CompileInput, CompileResult, Report
from app.core.compile.instruction import system_text
from app.core.compile.lower import lower
from app.core.compile.passes.call_signatures import call_signatures
from app.core.compile.passes.compaction_mask import compaction_mask
from app.core.compile.passes.context_injection import context_injection
from app.core.compile.passes.elision import elision
from app.core.compile.passes.fit_budget import fit_budget
from app.core.compile.passes.mark_prefix import mark_prefix
from app.core.compile.passes.media_limits import media_limits
from app.core.compile.passes.merge_turns import merge_turns
from app.core.compile.passes.narration import narration
from app.core.compile.passes.reasoning import reasoning
from app.core.compile.passes.reply_order import reply_order
from app.core.compile.passes.rewind import rewind
from app.core.compile.passes.tool_pairing import tool_pairing
from app.core.compile.passes.visibility import visibility
from app.core.compile.render import render
from app.core.contents import Contents
from app.core.events import Events

#: Bumped whenever the output of a pass changes. Answered with every compile, and part of cache
#: keys; not of the fingerprint, since equal bytes are equal.
PIPELINE_VERSION: Final = "6"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pass(Generic[T]):
    """A named rewrite. The name is that of its module, and of its traces, metrics and goldens."""

    name: str
    run: Callable[[T, CompileInput, Report], T]


EVENT_PASSES: Final[tuple[Pass[Events], ...]] = (
    # First: what was undone must not influence any later decision.
    Pass("rewind", rewind),
    Pass("reply_order", reply_order),
    # Before the mask: a summary stands among the events that this reader sees.
    Pass("visibility", visibility),
    Pass("compaction_mask", compaction_mask),
    # Before narration, which must not quote what was left out.
    Pass("elision", elision),
    # Before pairing: what another agent called is told as text and pairs with nothing.
    Pass("narration", narration),
    Pass("tool_pairing", tool_pairing),
)

CONTENT_PASSES: Final[tuple[Pass[Contents], ...]] = (
    Pass("context_injection", context_injection),
    # After everything that adds media, and before their tokens are counted.
    Pass("media_limits", media_limits),
    # Before turns are joined: what is left may stand beside a neighbour of its own role.
    Pass("fit_budget", fit_budget),
    # After everything that adds or takes contents.
    Pass("merge_turns", merge_turns),
    # Before reasoning, which compares what is sent with what was.
    Pass("call_signatures", call_signatures),
    # After turns are made: the chain that thinking is held against counts what stands between them.
    Pass("reasoning", reasoning),
    Pass("mark_prefix", mark_prefix),
)

PASS_NAMES: Final = tuple(p.name for p in EVENT_PASSES) + tuple(p.name for p in CONTENT_PASSES)


class PassObserver(Protocol):
    """Sees what goes through the pipeline: for timing, ``explain`` and printing. Never changes
    it."""

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave. Called first with the name ``read`` and the events as they
        came."""


def run_pipeline(
    events: Events, inputs: CompileInput, observer: PassObserver | None = None
) -> CompileResult:
    """Return what the events compile to. Pure: the same arguments give the same bytes."""
    report = Report()
    if observer is not None:
        observer.passed("read", events)
    for event_pass in EVENT_PASSES:
        events = event_pass.run(events, inputs, report)
        if observer is not None:
            observer.passed(event_pass.name, events)
    contents = lower(events, inputs, report)
    if observer is not None:
        observer.passed("lower", contents)
    for content_pass in CONTENT_PASSES:
        contents = content_pass.run(contents, inputs, report)
        if observer is not None:
            observer.passed(content_pass.name, contents)
    system = system_text(inputs.options, inputs.state)
    return render(contents, inputs, report, system=system)
