"""`foldline demo [SESSION]`: one session through the whole service, told to a person.

    append -> compile for three providers -> rewind -> reply -> pin, fold -> what changed -> undo

The service is started for it on a Postgres of its own, asked over HTTP like by any caller, and
nothing is left running. Without a file the demo plays a sample of its own.
"""

import argparse
import json
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import httpx

from app.cli.service_process import ServiceFailedError, running_service
from app.cli.session_file import SessionFile, append_all, read_session
from app.cli.terminal import cut, styled, table, width
from app.core.canonical import Json
from app.core.contents import Part
from app.core.errors import InvalidInputError
from app.core.printing import JOINT, part_text, parts_text, ranges_text
from app.formats import CONVERTERS
from app.formats.adk import parse_event

SAMPLE: Final = "sample_session.json"
DEFAULT_AGENT: Final = "agent"
PROVIDERS: Final = ("gemini", "openai_chat", "anthropic")
#: Below the limit of one append, in events; an item may make several.
BATCH_ITEMS: Final = 200
#: And in bytes, of the 10 MiB that a request may have.
BATCH_BYTES: Final = 4 * 1024 * 1024
#: The most turns of one compile that are printed: the first and the last of them.
SHOWN_TURNS: Final = 12
EXCERPT: Final = 90
#: Of each part of a turn that has several.
MIN_EXCERPT: Final = 24
#: How much of the session is folded.
FOLDED_SHARE: Final = 0.6
#: The most characters that the summary quotes of one event, and of how many events.
QUOTED: Final = 120
QUOTED_EVENTS: Final = 8
DIFFERENCE_LINES: Final = 4
UNPROCESSABLE: Final = 422


class DemoError(Exception):
    """The service answered what the demo did not expect."""


class _RefusedError(DemoError):
    """The service refused, for a reason that lies in the session."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session."""
    parser.add_argument("session", nargs="?", metavar="SESSION", help="a file of your own")
    parser.add_argument(
        "--format", choices=sorted(CONVERTERS), help="of the file (else told by it)"
    )
    parser.add_argument(
        "--agent", help="the agent that will read it (else the one that speaks most)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Play the demo; return 0 only if all of it worked."""
    try:
        session = _session(arguments)
        # What the service would refuse is told before it is started.
        append_all(session, agent=arguments.agent or DEFAULT_AGENT, count_tokens=len)
        print(styled("Foldline demo", "bold"), f"with {arguments.session or 'the bundled sample'}")
        print(styled("starting the service on a Postgres of its own ...", "dim"), flush=True)
        started_at = time.perf_counter()
        with running_service() as url, httpx.Client(base_url=url, timeout=60) as client:
            took_s = time.perf_counter() - started_at
            print(styled(f"{url}, ready after {took_s:.1f} s", "dim"))
            _Demo(client, session, arguments.agent).play()
    except InvalidInputError as error:
        where = f" (at {error.pointer})" if error.pointer else ""
        print(f"foldline demo: {arguments.session}: {error.detail}{where}", file=sys.stderr)
        return 2
    except (DemoError, ServiceFailedError, httpx.HTTPError) as error:
        print(f"{styled('the demo failed', 'red', 'bold')}: {error}", file=sys.stderr)
        return 1
    print(styled("\nThe service has stopped, and nothing of it is left.", "dim"))
    return 0


def _session(arguments: argparse.Namespace) -> SessionFile:
    if arguments.session is None:
        text = files("app.cli").joinpath(SAMPLE).read_text(encoding="utf-8")
        return read_session(text)
    try:
        text = Path(arguments.session).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"is not UTF-8, at byte {error.start}") from error
    return read_session(text, format_name=arguments.format)


@dataclass(frozen=True, slots=True)
class _Logged:
    """What the demo must know of an event of the log."""

    seq: int
    author: str
    lane: tuple[str | None, str]
    invocation_id: str
    says: str
    is_user_text: bool


class _Demo:
    """The steps, in order; each prints what it did."""

    def __init__(self, client: httpx.Client, session: SessionFile, agent: str | None) -> None:
        self._client = client
        self._session = session
        self._agent = agent or ""
        self._path = "/v1/sessions/demo"
        self._events: list[_Logged] = []
        self._number = 0

    def play(self) -> None:
        """Play every step."""
        self._append()
        first = self._compile_for_all()
        rewound = self._rewind()
        replied = self._reply(rewound)
        fold_seq = self._fold(replied)
        if fold_seq is not None:
            self._say_what_changed(replied)
        self._look_back(first, fold_seq)

    # Steps

    def _append(self) -> None:
        self._heading("Append the session", "every event is kept as it was sent, for ever")
        self._call("PUT", "", {"app_name": "demo", "user_id": "you", **self._state(), **_BY_HAND})
        warnings, tokens, started_at = 0, 0, time.perf_counter()
        for batch in _batches(self._session.items):
            body: Json = {
                "format": self._session.format_name,
                "items": batch,
                "agent": self._agent or DEFAULT_AGENT,
            }
            answer = self._call("POST", "/events", body)
            warnings += len(answer["warnings"])
            tokens += sum(item["tokens"] or 0 for item in answer["appended"])
        took_ms = (time.perf_counter() - started_at) * 1000
        self._events = list(self._logged())
        if not self._events:
            raise InvalidInputError("the session holds no events")
        self._agent = self._agent or self._main_agent()
        print(
            f"{len(self._session.items)} {self._session.format_name} items became "
            f"{len(self._events)} events of {tokens:,} tokens in {took_ms:.0f} ms"
            + (f", with {warnings} remarks" if warnings else "")
        )
        authors = Counter(event.author for event in self._events)
        said = ", ".join(f"{author or '?'} {count}" for author, count in authors.most_common(6))
        print(f"authors: {said}; compiled below for {styled(self._agent, 'bold')}")

    def _state(self) -> dict[str, Json]:
        return {"state": dict(self._session.state)} if self._session.state else {}

    def _compile_for_all(self) -> dict[str, Any]:
        self._heading("Compile for three providers", "the same log, each time valid as it is sent")
        answers = {name: self._compile(name) for name in PROVIDERS}
        print(
            table(
                _FIGURES, [_figures(name, answer) for name, answer in answers.items()], right=_RIGHT
            )
        )
        shown = answers["anthropic"]
        print(styled("\nwhat anthropic is sent, shortened:", "dim"))
        self._print_turns(shown)
        self._print_repairs(shown)
        return shown

    def _rewind(self) -> dict[str, Any]:
        self._heading("Rewind", "what went wrong is undone by one more event, and stays in the log")
        newest = next((e.invocation_id for e in reversed(self._events) if e.invocation_id), "")
        first_seq = next((e.seq for e in self._events if e.invocation_id == newest), 1)
        if newest and first_seq > 1:
            target: Json = {"before_invocation_id": newest}
            undone = f"invocation {newest}"
        else:
            first_seq = max(2, len(self._events) * 4 // 5)
            target = {"to_seq": first_seq - 1}
            undone = f"what follows seq {first_seq - 1}"
        if first_seq > len(self._events):
            print("the session is too short to undo a part of it")
            return self._compile("anthropic")
        marker = self._call("POST", "/rewind", target)
        self._events = [event for event in self._events if event.seq < first_seq]
        print(f"undone: {undone}, by the event at seq {marker['seq']}")
        answer = self._compile("anthropic")
        self._print_turns(answer, only_last=True)
        return answer

    def _reply(self, compiled: Mapping[str, Any]) -> dict[str, Any]:
        self._heading(
            "The model replies", "the reply says what it was compiled for, so the log knows"
        )
        reply: Json = {
            "author": self._agent,
            "content": {"role": "model", "parts": [{"text": "Let me sum up where we are."}]},
            "compiled_seq": compiled["compiled_seq"],
            "compiled_fingerprint": compiled["fingerprint"],
        }
        question: Json = {"author": "user", "content": "Yes, please."}
        self._call("POST", "/events", {"events": [reply, question]})
        answer = self._compile("anthropic")
        self._print_break(answer)
        delta = self._compile("anthropic", base_fingerprint=compiled["fingerprint"])
        new, total = _parts_of(delta), _parts_of(answer)
        print(f"asked with base_fingerprint, only what is new is answered: {new} of {total} parts")
        return answer

    def _fold(self, before: Mapping[str, Any]) -> int | None:
        """Pin and fold; return the fold's seq, or None where the session allows none."""
        self._heading(
            "Pin a rule, fold the past", "a summary stands for what it covers; the pin stays"
        )
        pinned = next((event for event in self._events if event.is_user_text), None)
        lane, covered = self._foldable()
        summary = _summary(covered, pinned)
        body: Json = {
            "covers": {"from_seq": 1, "to_seq": covered[-1].seq},
            "content": summary,
            "branch": lane[1],
            "isolation_scope": lane[0],
        }
        try:
            if pinned is not None:
                self._call("POST", "/pins", {"seqs": [pinned.seq]})
                print(f"pinned seq {pinned.seq}: {cut(pinned.says, EXCERPT)}")
            fold = self._call("POST", "/summaries", body)
        except _RefusedError as error:
            print(f"this session allows none of it: {error}")
            return None
        print(
            f"folded {_spans(fold['covers'])}: {fold['tokens_before']:,} tokens are read as "
            f"{fold['tokens_after']:,}"
        )
        print(
            "\n".join(styled(f"  {cut(line, width() - 2)}", "dim") for line in summary.splitlines())
        )
        after = self._compile("anthropic")
        print(table(_FIGURES, [_figures("before", before), _figures("after", after)], right=_RIGHT))
        print(styled("\nwhat anthropic is sent now, shortened:", "dim"))
        self._print_turns(after)
        return int(fold["seq"])

    def _say_what_changed(self, before: Mapping[str, Any]) -> None:
        self._heading("What changed, and why", "no one has to guess why a provider's cache missed")
        after = self._compile("anthropic", explain=True)
        self._print_break(after)
        options = self._options("anthropic")
        difference = self._call(
            "POST",
            "/compile:diff",
            {"a": options | {"as_of_seq": before["compiled_seq"]}, "b": options},
        )
        cause, tokens = difference["cause"] or {}, difference["tokens"]
        print(
            f"compile:diff: the first different turn is {difference['first_block']}, because of "
            f"{cause.get('reason')} at seq {cause.get('seq')}; tokens {tokens['a']:,} -> "
            f"{tokens['b']:,}"
        )
        for line in textwrap.wrap(difference["text"], width() - 4)[:DIFFERENCE_LINES]:
            print(f"  {line}")
        self._print_fates(after)

    def _look_back(self, first: Mapping[str, Any], fold_seq: int | None) -> None:
        self._heading(
            "Nothing was lost", "every earlier position compiles to the bytes it had then"
        )
        then = self._compile("anthropic", as_of_seq=first["compiled_seq"])
        if then["fingerprint"] != first["fingerprint"] or then["request"] != first["request"]:
            raise DemoError("an earlier position compiles to other bytes than it did")
        print(
            f"as_of_seq {first['compiled_seq']}: fingerprint {styled(_short(first), 'green')} again"
        )
        if fold_seq is not None:
            folded = self._compile("anthropic")
            self._call("POST", f"/compactions/{fold_seq}/undo")
            unfolded = self._compile("anthropic")
            tokens = f"{folded['tokens']['total']:,} -> {unfolded['tokens']['total']:,} tokens"
            print(f"the fold undone, its events are read again: {tokens}")
        stats = self._call("GET", "")["stats"]
        print(
            f"the log holds {stats['events']} events and {stats['tokens_raw']:,} tokens, of which "
            f"{stats['live_events']} events are read"
        )

    # Asking the service

    def _call(self, method: str, path: str, body: Json = None) -> dict[str, Any]:
        answer = self._client.request(
            method,
            self._path + path,
            content=None if body is None else _encoded(body),
            headers=None if body is None else {"content-type": "application/json"},
        )
        if answer.is_success:
            value: dict[str, Any] = answer.json()
            return value
        told = f"{method} {self._path}{path} answered {answer.status_code}: {_problem(answer)}"
        raise (_RefusedError if answer.status_code == UNPROCESSABLE else DemoError)(told)

    def _options(self, format_name: str) -> dict[str, Json]:
        options: dict[str, Json] = {"agent": self._agent, "format": format_name}
        return options | ({"system": self._session.system} if self._session.system else {})

    def _compile(self, format_name: str, **further: Json) -> dict[str, Any]:
        answer = self._call("POST", "/compile", self._options(format_name) | further)
        return {"format": format_name, **answer}

    def _logged(self) -> Iterator[_Logged]:
        """Yield the events of the log, page by page."""
        query = "?limit=1000"
        while True:
            page = self._call("GET", f"/events{query}")
            yield from (_read(value) for value in page["data"])
            if not page["has_more"]:
                return
            query = f"?limit=1000&after={page['next']}"

    def _main_agent(self) -> str:
        """Return the agent that speaks most."""
        spoken = Counter(e.author for e in self._events if e.author not in ("", "user"))
        return spoken.most_common(1)[0][0] if spoken else DEFAULT_AGENT

    def _foldable(self) -> tuple[tuple[str | None, str], list[_Logged]]:
        """Return the lane with most events in the older part of the log, and its events there.

        The part ends before a message of the user where it can, so that no call is cut from its
        result.
        """
        until = max(1, int(len(self._events) * FOLDED_SHARE))
        cuts = [n for n, event in enumerate(self._events) if event.is_user_text and 1 < n <= until]
        older = self._events[: cuts[-1] if cuts else until]
        lane = Counter(event.lane for event in older).most_common(1)[0][0]
        return lane, [event for event in older if event.lane == lane]

    # Printing

    def _heading(self, title: str, why: str) -> None:
        self._number += 1
        print(f"\n{styled(f'{self._number}  {title}', 'bold', 'cyan')} {styled('- ' + why, 'dim')}")

    def _print_turns(self, answer: Mapping[str, Any], *, only_last: bool = False) -> None:
        turns = list(_contents(answer))
        head, tail = (0 if only_last else SHOWN_TURNS // 2), SHOWN_TURNS // 2
        left_out = len(turns) - head - tail
        room = width() - 16
        for number, (role, parts) in enumerate(turns):
            if left_out > 0 and number == head:
                print(styled(f"      ... {left_out} turns", "dim"))
            if left_out <= 0 or number < head or number >= len(turns) - tail:
                who = styled(f"{role:<9}", "blue" if role == "user" else "green")
                print(f"  {number:>3} {who} {cut(_line(parts, room), room)}")

    def _print_repairs(self, answer: Mapping[str, Any]) -> None:
        rules = Counter(repair["rule"] for repair in answer["repairs"])
        if rules:
            said = ", ".join(f"{count} x {rule}" for rule, count in sorted(rules.items()))
            print(f"repaired for the provider: {said}")
        if "tail_nudge" in rules:
            print("  (no user's turn closes the conversation, so one that says to go on is added)")
        for call in answer["pending"][:3]:
            print(f"pending: {call['name']} of seq {call['seq']}, a result may still come")

    def _print_break(self, answer: Mapping[str, Any]) -> None:
        cache = answer["cache"]
        if cache["break_reason"] is None:
            print(
                f"the prefix holds: all that the reply answered is sent again, byte for byte "
                f"({answer['prefix_count']} parts can be cached)"
            )
        else:
            print(
                f"the prefix broke: {styled(cache['break_reason'], 'yellow', 'bold')}, "
                f"by the event at seq {cache['break_seq']}"
            )

    def _print_fates(self, answer: Mapping[str, Any]) -> None:
        fates = Counter[str]()
        for row in answer["events"]:
            fates[row["action"]] += row["to_seq"] - row["from_seq"] + 1 if "to_seq" in row else 1
        said = ", ".join(f"{count} {action}" for action, count in fates.most_common())
        print(f"explain: of the {answer['compiled_seq']} events, {said}")


# ----------------------------------------------------------------------------------------- values

#: What is folded here is folded by the caller.
_BY_HAND: Final[Mapping[str, Json]] = {"policy": {"compaction": {"strategy": "none"}}}
_FIGURES: Final = ("", "turns", "parts", "tokens", "cacheable", "fingerprint")
_RIGHT: Final = (1, 2, 3, 4)


def _encoded(body: Json) -> bytes:
    """Return the body as JSON; lone surrogates, which files do hold, travel as escapes."""
    return json.dumps(body).encode()


def _problem(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
    except ValueError:
        return answer.text[:EXCERPT]
    errors = "; ".join(f"{e.get('pointer')}: {e.get('detail')}" for e in problem.get("errors", ()))
    return f"{problem.get('code')}: {problem.get('detail')}{f' ({errors})' if errors else ''}"


def _batches(items: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the items in batches that one append takes."""
    batch: list[Json] = []
    size_bytes = 0
    for item in items:
        item_bytes = len(_encoded(item))
        if batch and (len(batch) == BATCH_ITEMS or size_bytes + item_bytes > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(item)
        size_bytes += item_bytes
    if batch:
        yield batch


def _read(value: dict[str, Any]) -> _Logged:
    event = parse_event(value, allow_markers=True).event
    return _Logged(
        seq=value["seq"],
        author=event.author,
        lane=(event.lane.isolation_scope, event.lane.branch),
        invocation_id=event.invocation_id,
        says=parts_text(event.parts, limit=QUOTED),
        is_user_text=event.author == "user" and bool(event.parts) and not event.responses,
    )


def _figures(name: str, answer: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(len(list(_contents(answer)))),
        str(_parts_of(answer)),
        f"{answer['tokens']['total']:,}",
        f"{answer['prefix_count']} parts",
        _short(answer),
    )


def _short(answer: Mapping[str, Any]) -> str:
    fingerprint = str(answer["fingerprint"])
    return f"{fingerprint[:8]}…{fingerprint[-8:]}"


def _spans(ranges: Sequence[Sequence[int]]) -> str:
    return ranges_text(tuple((low, high) for low, high in ranges))


def _parts_of(answer: Mapping[str, Any]) -> int:
    return sum(len(parts) for _, parts in _contents(answer))


def _contents(answer: Mapping[str, Any]) -> Iterator[tuple[str, list[Part]]]:
    """Read the provider's request back, turn by turn."""
    request, format_name = answer["request"], answer["format"]
    for item in request.get("contents") or request.get("messages") or ():
        bodies = CONVERTERS[format_name](item, agent="model")
        yield str(item["role"]), [part for body in bodies for part in parse_event(body).event.parts]


def _line(parts: Sequence[Part], room: int) -> str:
    """Return what a turn says on one line, with something of each part."""
    share = max(MIN_EXCERPT, room // max(1, len(parts)) - len(JOINT))
    return JOINT.join(cut(part_text(part, limit=EXCERPT), share) for part in parts)


def _summary(events: Iterable[_Logged], pinned: _Logged | None) -> str:
    """Return a summary as a caller would make one: here, what was said, shortened."""
    quoted = [e for e in events if e.says.startswith('"') and e is not pinned]
    lines = [f"- {event.author} said {event.says}" for event in quoted[:QUOTED_EVENTS]]
    left_out = len(quoted) - len(lines)
    if left_out > 0:
        lines.append(f"- and {left_out} more")
    return "Summary of the conversation so far:\n" + "\n".join(lines)
