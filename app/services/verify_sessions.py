"""Re-check stored sessions: after a restore, after a fault, or because someone wants to know.

Beside what the storage compares, the fingerprints that replies recorded are proved
(`prove_replies.py`). One that is not is counted, and is a finding only where nothing that a caller
may have asked for explains it, and another reply of the same reader and head was proved: then the
log before it is another than the one that it answered.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.core.compile.inputs import CompileOptions
from app.core.copying import replace
from app.core.errors import SessionNotFoundError
from app.ports import Database, Finding, LogChecks, RecordedReply, SessionKey
from app.services.prove_replies import Proof, ProveReplies

#: Sessions that are listed at a time.
PAGE: Final = 200
#: After so many replies of a session that nothing proved, no more than the likely is tried.
MAX_SEARCHES: Final = 5
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
        prove: ProveReplies,
    ) -> None:
        self._database = database
        self._checks = checks
        self._prove = prove

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
        outcomes: list[tuple[RecordedReply, Proof]] = []
        unproved = 0
        likely: dict[tuple[str, str, str | None, str], CompileOptions] = {}
        for reply in replies:
            proof, options = await self._prove(
                report.key, reply, likely.get(_place(reply)), searches=unproved < MAX_SEARCHES
            )
            unproved += proof is not Proof.PROVED
            outcomes.append((reply, proof))
            if options is not None:
                likely[_place(reply)] = options
        broken = [
            Finding(
                kind="chain",
                seq=reply.seq,
                detail="what it was compiled for does not hash to the fingerprint that it recorded",
            )
            for reply, proof in outcomes
            if proof is Proof.REFUTED and _place(reply) in likely
        ]
        count = sum(proof is Proof.PROVED for _, proof in outcomes)
        return replace(
            report,
            findings=tuple(broken),
            replies_proved=count,
            replies_not_proved=len(outcomes) - count,
        )


def _place(reply: RecordedReply) -> tuple[str, str, str | None, str]:
    lane = reply.lane
    return reply.author, lane.branch, lane.isolation_scope, reply.fingerprint[:_HEAD_DIGITS]
