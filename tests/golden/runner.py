"""Golden cases: events in builder form, and what a pass, or the whole pipeline, makes of them.

    why: what the case shows
    events: |
      user("find it")
      call("search", id="c1")
    options:                          # of the compile; may be left out
      agent: bot
      format: anthropic
    expected: |
      1 user: "find it"
      ...

``expected`` comes last: it is what ``--update-golden`` writes anew. It holds the lines of
``app.core.printing``, or the one word ``unchanged`` where the pass gives back what it got, and
after them what the pass reported. A pipeline case has the emitted turns, the report and the
request.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from app.core.compile.adk.opening import find_opening_args
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult, Instruction, Report
from app.core.compile.lower import lower
from app.core.compile.pipeline import CONTENT_PASSES, EVENT_PASSES, Pass, run_pipeline
from app.core.compile.render import request_fields
from app.core.contents import Contents
from app.core.copying import replace
from app.core.events import Event, Events
from app.core.lanes import Reader
from app.core.printing import content_line, event_line
from app.formats import FORMATS
from app.formats.fields import json_object
from app.providers.model_rules import load_model_rules
from tests import builders
from tests.builders import log

CASES: Final = Path(__file__).parent / "cases"
PIPELINE: Final = "pipeline"
#: Cases of the planner: :mod:`tests.golden.plans`.
PLANS: Final = "plans"
UNCHANGED: Final = "unchanged"
_READER_OPTIONS: Final = ("agent", "branch", "isolation_scope", "node_path")
_BUILDERS: Final = {name: getattr(builders, name) for name in dir(builders) if name[0] != "_"}


class Case:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pass_name = path.parent.name
        self._text = path.read_text(encoding="utf-8")
        #: All that the file says.
        self.values: dict[str, Any] = yaml.safe_load(self._text)

    def __repr__(self) -> str:
        return f"{self.pass_name}/{self.path.stem}"

    @property
    def why(self) -> str:
        """What the case shows."""
        return str(self.values.get("why") or "")

    @property
    def expected(self) -> list[str]:
        """The lines that the file holds."""
        return str(self.values.get("expected") or "").splitlines()

    @property
    def options(self) -> dict[str, Any]:
        """The options as the file gives them."""
        return dict(self.values.get("options") or {})

    def update(self, lines: Sequence[str]) -> None:
        """Write the lines into the file."""
        head = self._text.partition("\nexpected:")[0].rstrip("\n")
        body = "".join(f"  {line}\n" if line else "\n" for line in lines)
        self.path.write_text(f"{head}\nexpected: |\n{body}", encoding="utf-8")

    def inputs(self) -> tuple[Events, CompileInput]:
        """Return the log of the case, and what it is compiled with."""
        built = log(*self.events())
        options = compile_options(self.options)
        scope = options.reader.isolation_scope
        return built.events, CompileInput(
            options=options,
            format=FORMATS[self.options.get("format", "gemini")],
            index=built.index,
            compiled_seq=len(built.events),
            state=self.values.get("state") or {},
            opening_args=find_opening_args(built.events, scope),
            budget_tokens=self.options.get("budget"),
            rule=load_model_rules().find(options.model),
        )

    def run(self) -> list[str]:
        """Return what is to be compared with the file."""
        events, inputs = self.inputs()
        if self.pass_name == PIPELINE:
            result = run_pipeline(events, inputs)
            return [*_turns(result), *_reported(result), _request(result, inputs)]
        return list(_after(self.pass_name, events, inputs))

    def events(self) -> Iterator[Event]:
        """Yield the events as they are sent."""
        source = str(self.values.get("events") or "")
        # Our own files, in the words of the builders and no others.
        yield from eval(f"[{_commas(source)}]", {"__builtins__": {}, **_BUILDERS})  # noqa: S307


def all_cases() -> list[Case]:
    """Return every case of a pass or of the pipeline, by path."""
    paths = sorted(CASES.glob("*/*.yaml"))
    return [Case(path) for path in paths if path.parent.name != PLANS]


def compile_options(given: dict[str, Any]) -> CompileOptions:
    """Return the options of a case: a reader's fields stand beside the others."""
    options = {key: value for key, value in given.items() if key not in ("format", "budget")}
    reader = Reader(**{key: options.pop(key) for key in _READER_OPTIONS if key in options})
    instruction = Instruction(**options.pop("instruction", {}))
    return replace(CompileOptions(reader=reader, instruction=instruction), **options)


def _commas(source: str) -> str:
    """Join the lines, each an event; a line that ends in a bracket or comma goes on."""
    return "".join(
        f"{line}\n" if line.endswith(("(", ",")) else f"{line},\n" for line in source.splitlines()
    )


def _after(pass_name: str, events: Events, inputs: CompileInput) -> Iterator[str]:
    """Yield what one pass gives and reports, after those that run before it."""
    report = Report()
    items: Events | Contents = events
    for step in (*EVENT_PASSES, Pass("lower", lower), *CONTENT_PASSES):
        before, report = _printed(items), Report()
        items = step.run(items, inputs, report)
        if step.name == pass_name:
            after = _printed(items)
            yield from [UNCHANGED] if before == after else after
            yield from _report_lines(report)
            return
    raise LookupError(f"no pass is named {pass_name!r}")


def _printed(items: Events | Contents) -> list[str]:
    return [event_line(item) if isinstance(item, Event) else content_line(item) for item in items]


def _report_lines(report: Report) -> list[str]:
    return [
        *(f"pending {call.name} of {call.seq}" for call in report.pending),
        *(f"repair {repair.rule} at {repair.seq}: {repair.detail}" for repair in report.repairs),
        *(f"{cut.action} at {cut.seq}: {cut.tokens} tokens" for cut in report.budget_actions),
        *(f"warning {warning}" for warning in report.warnings),
    ]


def _turns(result: CompileResult) -> Iterator[str]:
    if result.system:
        yield f"system: {result.system}"
    for rendered in result.rendered:
        yield content_line(rendered.content)


def _reported(result: CompileResult) -> list[str]:
    report = Report()
    report.pending.extend(result.pending)
    report.repairs.extend(result.repairs)
    report.warnings.extend(result.warnings)
    report.budget_actions.extend(result.budget_actions)
    return _report_lines(report)


def _request(result: CompileResult, inputs: CompileInput) -> str:
    fields = request_fields(result, inputs.format, inputs.options)
    return json_object(fields.items())
