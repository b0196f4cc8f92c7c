"""Re-check stored sessions: after a restore, after a fault, or because someone wants to know.

Beside what the storage compares, the fingerprints that replies recorded are proved: what was
compiled for a reply is compiled again, and must hash to what the reply says. The options of that
compile are not stored, but the fingerprint's head tells format and model, and stands for tools and
system text; whether an agent was named, and how others are told of, is tried out. A reply whose
compile had options that are not known is counted as not proved. It is a finding only where another
reply of the same reader and head was proved: then the log before it is another than the one that it
answered, or it was cut for a budget that the caller named.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from app.core.compile.inputs import CompileOptions, Format
from app.core.compile.render import chained_parts
from app.core.copying import replace
from app.core.errors import FoldlineError, SessionNotFoundError, StorageError
from app.core.fingerprint import Chain, start_of
from app.core.lanes import Reader
from app.core.model_rules import ModelRules
from app.ports import Database, Finding, LogChecks, RecordedReply, SessionKey
from app.services.compile_context import CompileContext
from app.services.compiled import CompileRequest

#: Sessions that are listed at a time.
PAGE: Final = 200
#: What a compile may have been asked for that its head does not show, the usual first.
_OPTIONS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"narration": "name"},
    {"narration": "none"},
    {"foreign_thoughts": True},
    {"include_contents": "none"},
)
_MODEL_DIGITS: Final = 8
_HEAD_DIGITS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What was found of one session."""

    key: SessionKey
    findings: tuple[Finding, ...]
    events: int
    #: Fingerprints that replies recorded and that were compiled again: equal, and not known.
    replies_proved: int = 0
    replies_not_proved: int = 0
    #: Not looked at: only the first of each reader and head, and the newest, are.
    replies_skipped: int = 0


class VerifySessions:
    """Checks sessions one by one; memory stays flat."""

    def __init__(
        self,
        *,
        database: Database,
        checks: LogChecks,
        compile_context: CompileContext,
        formats: Mapping[str, Format],
        rules: ModelRules,
    ) -> None:
        self._database = database
        self._checks = checks
        self._compile = compile_context
        self._formats = formats
        self._by_digits = _by_digits(formats, rules)

    async def __call__(self, key: SessionKey, *, with_chain: bool = True) -> SessionReport:
        """Check a session.

        Raises:
            SessionNotFoundError: there is none.
        """
        async with self._database.snapshot() as connection:
            check = await self._checks.check(connection, key)
        if check is None:
            raise SessionNotFoundError
        report = SessionReport(key=key, findings=check.findings, events=check.events)
        # What is damaged compiles to anything.
        if check.findings or not with_chain:
            return report
        report = await self._with_chain(report, check.replies)
        return replace(report, replies_skipped=check.replies_left)

    async def all(
        self, *, tenant_id: str | None = None, with_chain: bool = True
    ) -> AsyncIterator[SessionReport]:
        """Check every session, of a tenant or of all."""
        after: UUID | None = None
        while True:
            async with self._database.connection() as connection:
                keys = await self._checks.sessions(
                    connection, tenant_id=tenant_id, after=after, limit=PAGE
                )
            for key in keys:
                try:
                    yield await self(key, with_chain=with_chain)
                except SessionNotFoundError:
                    # Erased meanwhile.
                    continue
            if len(keys) < PAGE:
                return
            after = keys[-1].uid

    async def strays(self) -> tuple[Finding, ...]:
        """Return rows of sessions that are not there."""
        async with self._database.connection() as connection:
            return tuple(await self._checks.strays(connection))

    async def _with_chain(
        self, report: SessionReport, replies: Iterable[RecordedReply]
    ) -> SessionReport:
        outcomes = [(reply, await self._proves(report.key, reply)) for reply in replies]
        proved = {_place(reply) for reply, is_proved in outcomes if is_proved}
        broken = [
            Finding(
                kind="chain",
                seq=reply.seq,
                detail="what it was compiled for does not hash to the fingerprint that it recorded",
            )
            for reply, is_proved in outcomes
            if is_proved is False and _place(reply) in proved
        ]
        count = sum(is_proved is True for _, is_proved in outcomes)
        return replace(
            report,
            findings=tuple(broken),
            replies_proved=count,
            replies_not_proved=len(outcomes) - count,
        )

    async def _proves(self, key: SessionKey, reply: RecordedReply) -> bool | None:
        """Tell whether a reply's fingerprint is that of its compile; None: it cannot be told."""
        found = self._by_digits.get(reply.fingerprint[:_MODEL_DIGITS])
        if found is None:
            return None
        format_name, model = found
        reader = Reader(
            agent=reply.author,
            branch=reply.lane.branch,
            isolation_scope=reply.lane.isolation_scope,
        )
        usual = CompileOptions(reader=reader, model=model)
        # The last is of whoever named no agent: to no one in particular nothing is foreign.
        tried = [
            *(replace(usual, **changes) for changes in _OPTIONS),
            replace(usual, reader=replace(reader, agent="")),
        ]
        outcomes: list[bool | None] = []
        for options in tried:
            request = CompileRequest(
                options=options,
                format=self._formats[format_name],
                as_of_seq=reply.compiled_seq,
                is_sent=False,
            )
            outcomes.append(await self._hashes_to(key, request, reply.fingerprint))
            if outcomes[-1]:
                return True
        return None if None in outcomes else False

    async def _hashes_to(
        self, key: SessionKey, request: CompileRequest, fingerprint: str
    ) -> bool | None:
        """Tell whether a compile has this fingerprint; None: that depends on more than is known."""
        try:
            compiled = await self._compile(key, request)
        except StorageError:
            raise
        except FoldlineError:
            return None
        result = compiled.result
        chain = Chain(start_of(fingerprint))
        for role, part in chained_parts(result.rendered):
            chain.add(role, part.text)
        if chain.value == fingerprint:
            return True
        counts = result.reasoning
        # What was cut, and which thinking stood, depends on tools and system text.
        is_open = bool(
            result.budget_actions or counts.kept or counts.stripped or counts.invalidated
        )
        return None if is_open else False


def _place(reply: RecordedReply) -> tuple[str, str, str | None, str]:
    lane = reply.lane
    return reply.author, lane.branch, lane.isolation_scope, reply.fingerprint[:_HEAD_DIGITS]


def _by_digits(formats: Mapping[str, Format], rules: ModelRules) -> dict[str, tuple[str, str]]:
    """Return format and model by the digits with which a fingerprint begins."""
    models = ["", *(name for rule in rules.rules for name in rule.match)]
    return {
        hashlib.sha256(f"{name}\0{model}".encode()).hexdigest()[:_MODEL_DIGITS]: (name, model)
        for name in formats
        for model in models
    }
