"""`foldline compile FILE`: compile a session from a file, with no server and no database.

The file is appended to a log in memory and goes through the pipeline that the service runs: the
same file gives the same bytes there.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

from app.cli.session_file import AppendedFile, SessionFile, append_all, read_session
from app.cli.terminal import cut, styled, table, width
from app.core.calibration import calibration_of
from app.core.canonical import canonical_json, json_string
from app.core.compile.adk.opening import find_opening_args
from app.core.compile.inputs import (
    CompileInput,
    CompileOptions,
    CompileResult,
    Ids,
    IncludeContents,
    Instruction,
    Narration,
    Preset,
    Thinking,
)
from app.core.compile.instruction import system_text
from app.core.compile.pipeline import PassObserver, run_pipeline
from app.core.compile.render import request_fields, tools_text
from app.core.compile.trace import EventTrace, PassTrace, explain
from app.core.contents import Content, Contents
from app.core.copying import replace
from app.core.errors import BudgetExceededError, InvalidInputError
from app.core.events import Event, Events
from app.core.index import resolve
from app.core.json_text import parse_json
from app.core.lanes import Reader
from app.core.printing import content_line, event_line
from app.core.resolve import Log
from app.core.tokens import CountTokens, part_tokens
from app.formats import CONVERTERS, FORMATS
from app.formats.fields import json_object
from app.providers.tokenizer import Tokenizer
from app.settings import load_settings
from app.wiring import model_rules

#: What was asked for cannot be done with what was given.
EXIT_USAGE: Final = 2
#: Author of model items where neither the file nor the caller names one.
DEFAULT_AGENT: Final = "agent"
#: The most notes that are printed; a file that is odd once is mostly odd everywhere.
MAX_NOTES: Final = 5
#: The most characters of a text in a listing.
EXCERPT: Final = 60

# ------------------------------------------------------------------------------------- arguments


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the file and the options; they have the names of the request's fields in the API."""
    parser.add_argument("file", metavar="FILE", help="the session; - reads standard input")
    parser.add_argument(
        "--format", choices=sorted(CONVERTERS), help="of the file (else told by it)"
    )
    parser.add_argument(
        "--to", choices=list(FORMATS), default="gemini", help="format of the answer"
    )
    parser.add_argument("--json", action="store_true", help="print the request's body and no more")
    parser.add_argument("--explain", action="store_true", help="say what became of every event")
    parser.add_argument("--passes", action="store_true", help="print what each pass gives")
    _configure_options(parser.add_argument_group("how to compile"))
    _configure_instruction(parser.add_argument_group("what stands beside the session"))


def _configure_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--agent", default="", help="the agent that will read it; none: anyone")
    group.add_argument("--branch", default="", help="the agent's branch")
    group.add_argument("--isolation-scope", help="the agent's isolation scope")
    group.add_argument("--as-of", type=int, metavar="SEQ", help="read the log up to here only")
    group.add_argument("--preset", choices=get_args(Preset), default="stable")
    group.add_argument("--include-contents", choices=get_args(IncludeContents), default="default")
    group.add_argument("--narration", choices=get_args(Narration), default="quoted")
    group.add_argument("--thinking", choices=get_args(Thinking), default="auto")
    group.add_argument("--ids", choices=get_args(Ids), default="auto")
    group.add_argument("--model", default="", help="the model that will read it")


def _configure_instruction(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--system", default="", help="system text, before the instructions")
    group.add_argument("--instruction", default="", help="the instruction; state is injected")
    group.add_argument("--static-instruction", default="", help="the part that never changes")
    group.add_argument("--global-instruction", default="", help="of all agents; state is injected")
    group.add_argument("--description", default="", help="of the agent")
    group.add_argument("--tools", metavar="FILE", help="a JSON list of tools")


# ------------------------------------------------------------------------------------------- run


def run(arguments: argparse.Namespace) -> int:
    """Compile the file and print what was asked for."""
    try:
        text = _read(arguments.file)
        session = read_session(text, format_name=arguments.format)
        agent = arguments.agent or DEFAULT_AGENT
        appended = append_all(session, agent=agent, count_tokens=Tokenizer().count)
        compiled = _Compiled(session, appended, arguments)
    except (InvalidInputError, BudgetExceededError) as error:
        pointer = getattr(error, "pointer", "")
        where = f" (at {pointer})" if pointer else ""
        name = "standard input" if arguments.file == "-" else arguments.file
        print(f"foldline compile: {name}: {error.detail}{where}", file=sys.stderr)
        return EXIT_USAGE
    for note in _shortened(appended.notes):
        print(f"note: {note}", file=sys.stderr)
    print(compiled.body if arguments.json else "\n".join(compiled.report()))
    return 0


def _read(name: str) -> str:
    """Return the text of a file, with or without a byte order mark."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"is not UTF-8, at byte {error.start}") from error


def _shortened(notes: Sequence[str]) -> Iterator[str]:
    yield from notes[:MAX_NOTES]
    if len(notes) > MAX_NOTES:
        yield f"and {len(notes) - MAX_NOTES} more like these"


def options_of(arguments: argparse.Namespace, session: SessionFile) -> CompileOptions:
    """Return the options that the arguments and the file ask for.

    Raises:
        InvalidInputError: the tools cannot be read.
    """
    return CompileOptions(
        reader=Reader(
            agent=arguments.agent,
            branch=arguments.branch,
            isolation_scope=arguments.isolation_scope,
        ),
        preset=arguments.preset,
        include_contents=arguments.include_contents,
        narration=arguments.narration,
        thinking=arguments.thinking,
        ids=arguments.ids,
        instruction=Instruction(
            static=arguments.static_instruction,
            dynamic=arguments.instruction,
            global_=arguments.global_instruction,
            description=arguments.description,
        ),
        system=arguments.system or session.system,
        tools=_tools(arguments, session),
        model=arguments.model,
    )


def for_model(inputs: CompileInput) -> CompileInput:
    """Return the inputs with what is known of the model that they name, as a service has it.

    Raises:
        SettingsError: the settings, or the file of model rules, cannot be used.
    """
    count = Tokenizer().count
    inputs = replace(inputs, count=count)
    if not inputs.options.model:
        return inputs
    settings = load_settings()
    rule = model_rules(settings).find(inputs.options.model)
    calibration = calibration_of(None, rule)
    budget = None if rule is None else rule.budget_tokens()
    options = replace(
        inputs.options,
        tail_nudge=settings.tail_nudge,
        call_signature_sentinel=settings.call_signature_sentinel,
    )
    tools = tools_text(inputs.format, options.tools)
    return replace(
        inputs,
        options=options,
        rule=rule,
        calibration=calibration,
        budget_tokens=None if budget is None else calibration.budget(budget),
        system_tokens=count(system_text(options, inputs.state)),
        tools_tokens=count(tools),
    )


def _tools(arguments: argparse.Namespace, session: SessionFile) -> tuple[str, ...]:
    if arguments.tools is None:
        # A provider's own shape is understood by its own format only.
        return session.tools if session.format_name in (arguments.to, "adk") else ()
    try:
        tools = parse_json(_read(arguments.tools))
    except InvalidInputError as error:
        raise InvalidInputError(f"the tools {arguments.tools}: {error.detail}") from error
    if not isinstance(tools, list):
        raise InvalidInputError(f"the tools {arguments.tools} must be a list")
    return tuple(canonical_json(tool) for tool in tools)


class _Compiled:
    """One compile and what there is to say of it."""

    def __init__(
        self, session: SessionFile, appended: AppendedFile, arguments: argparse.Namespace
    ) -> None:
        self._session = session
        self._appended = appended
        self._wants_explain = arguments.explain
        self._wants_passes = arguments.passes
        self._log = _up_to(appended.log, arguments.as_of)
        self._trace = PassTrace()
        self._passes = _PrintedPasses()
        self._options = options_of(arguments, session)
        self._wire = FORMATS[arguments.to]
        self._inputs = for_model(
            CompileInput(
                options=self._options,
                format=self._wire,
                index=self._log.index,
                compiled_seq=len(self._log.events),
                state=appended.state,
                opening_args=find_opening_args(
                    self._log.events, self._options.reader.isolation_scope
                ),
            )
        )
        self._options = self._inputs.options
        observer = _Observers(self._trace, self._passes)
        self._result = run_pipeline(self._log.events, self._inputs, observer)

    @property
    def body(self) -> str:
        """The provider's request body."""
        fields = request_fields(self._result, self._wire, self._options)
        return json_object(fields.items())

    def report(self) -> Iterator[str]:
        """Yield what a person wants to know, line by line."""
        yield from self._heading()
        if self._wants_passes:
            yield from self._passes.lines
        yield from self._turns()
        yield from self._figures()
        if self._wants_explain:
            yield ""
            rows = explain(self._log.events, self._inputs, self._trace, self._result)
            yield _fates(rows, self._log.events)

    def _heading(self) -> Iterator[str]:
        events, items = len(self._appended.log.events), len(self._session.items)
        yield styled(
            f"{_counted(items, f'{self._session.format_name} item')}, {_counted(events, 'event')}",
            "bold",
        )
        if self._session.tools and not self._result.tools:
            yield f"the file's tools are not in the shape of {self._wire.name}: left out"

    def _turns(self) -> Iterator[str]:
        yield ""
        yield styled(
            f"{_counted(len(self._result.rendered), 'turn')} for {self._wire.name}", "bold"
        )
        if self._result.system:
            yield cut(f"system: {json_string(self._result.system)}", width())
        for number, content in enumerate(self._emitted()):
            yield cut(f"{number:>3} {content_line(content, limit=EXCERPT)}", width())

    def _emitted(self) -> Iterator[Content]:
        return (rendered.content for rendered in self._result.rendered)

    def _figures(self) -> Iterator[str]:
        yield ""
        yield f"tokens       {_tokens(self._result, self._inputs.count)}"
        yield f"fingerprint  {self._result.fingerprint}"
        chained = len(self._result.chain) - 1
        yield f"prefix       {self._result.prefix_count} of {chained} parts can be cached"
        for call in self._result.pending:
            yield f"pending      {call.name} of seq {call.seq}: a result may still come"
        repairs = Counter(repair.rule for repair in self._result.repairs)
        for rule, count in sorted(repairs.items()):
            yield f"repaired     {count} x {rule}"
        for warning in self._result.warnings:
            yield f"warning      {warning}"


def _up_to(log: Log, as_of_seq: int | None) -> Log:
    """Return the log as it was when the head was at a seq."""
    if as_of_seq is None:
        return log
    head_seq = len(log.events)
    if not 0 <= as_of_seq <= head_seq:
        raise InvalidInputError(f"--as-of must be from 0 to {head_seq}, the log's head")
    events = log.events[:as_of_seq]
    return Log(events, resolve((e.seq, e.marker) for e in events if e.marker is not None))


# ------------------------------------------------------------------------------------- observers


class _PrintedPasses:
    """Keeps what each pass gave as text; of a pass that changed nothing only its name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._previous: list[str] = []

    def passed(self, name: str, items: Events | Contents) -> None:
        """Take what a pass gave."""
        printed = [_line_of(item) for item in items]
        self.lines.append("")
        if printed == self._previous:
            self.lines.append(styled(f"after {name}: no change", "dim"))
        else:
            self.lines.append(styled(f"after {name}", "bold"))
            self.lines.extend(cut(f"  {line}", width()) for line in printed)
        self._previous = printed


def _line_of(item: Event | Content) -> str:
    if isinstance(item, Event):
        return event_line(item, limit=EXCERPT)
    return content_line(item, limit=EXCERPT)


class _Observers:
    """Several observers as one."""

    def __init__(self, *observers: PassObserver) -> None:
        self._observers = observers

    def passed(self, name: str, items: Events | Contents) -> None:
        """Hand on what a pass gave."""
        for observer in self._observers:
            observer.passed(name, items)


# --------------------------------------------------------------------------------------- figures


def _tokens(result: CompileResult, count: CountTokens) -> str:
    """Return our count of the whole request, and where it goes."""
    counts: Counter[str] = Counter()
    counts["system"] = count(result.system) if result.system else 0
    counts["tools"] = count(result.tools) if result.tools else 0
    for content in result.contents:
        for placed in content.parts:
            counts[placed.segment] += placed.tokens or part_tokens(placed.part, count)
    said = ", ".join(f"{segment} {count:,}" for segment, count in counts.items() if count)
    return f"about {sum(counts.values()):,}{f' ({said})' if said else ''}"


def _fates(rows: Sequence[EventTrace], events: Events) -> str:
    by_seq = {event.seq: event for event in events}
    return table(
        ("seq", "action", "pass", "by", "turn", "tokens", "event"),
        [
            (
                str(row.from_seq) if row.from_seq == row.to_seq else f"{row.from_seq}-{row.to_seq}",
                row.action,
                row.pass_name or "",
                "" if row.by_seq is None else str(row.by_seq),
                "" if row.block is None else str(row.block),
                str(row.tokens),
                _told(row, by_seq),
            )
            for row in rows
        ],
        right=(0, 3, 4, 5),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _told(row: EventTrace, by_seq: dict[int, Event]) -> str:
    if row.from_seq != row.to_seq:
        return f"{row.to_seq - row.from_seq + 1} events"
    return event_line(by_seq[row.from_seq], limit=EXCERPT).partition(" ")[2]
