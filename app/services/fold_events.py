"""Folds: append a caller's summary, list folds, undo and activate them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.canonical import Json
from app.core.contents import (
    CodeExecutionResult,
    ExecutableCode,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    is_blank,
)
from app.core.copying import replace
from app.core.errors import EventNotFoundError, InvalidInputError, SessionNotFoundError
from app.core.events import (
    ActivationRequest,
    Fold,
    FoldRequest,
    Marker,
    MarkerRequest,
    Section,
    SectionRequest,
    UndoRequest,
)
from app.core.index import FoldStatus, fold_statuses, resolve
from app.core.json_text import parse_json
from app.core.ranges import Ranges, intersect, of_seqs, subtract, union
from app.ports import Connection, Database, EventLog, Job, JobQueue, LoggedEvent, SessionKey
from app.services.append_events import AppendResult
from app.services.append_marker import AppendMarker, NewMarker
from app.services.compaction_jobs import KINDS
from app.services.idempotency import IdempotentRequest
from app.services.prepare_events import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class CallersSummary:
    """A summary that the caller made."""

    key: SessionKey
    from_seq: int
    to_seq: int
    #: Only these seqs of the span.
    seqs: Sequence[int] | None
    parts: tuple[Part, ...]
    level: int
    branch: str
    isolation_scope: str | None
    is_staged: bool
    expected_seq: int | None = None
    idempotent: IdempotentRequest | None = None
    #: What could not be taken as it came.
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class SectionView:
    """A section and what became of it."""

    section: Section
    status: FoldStatus
    #: The summary's ledger as it is answered; empty where nobody made one.
    ledger: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldView:
    """A fold and what became of it."""

    seq: int
    id: str
    fold: Fold
    covers: Ranges
    #: What of the span stayed live, markers aside.
    holes: Ranges
    #: Earlier folds within its span.
    children: tuple[int, ...]
    tokens_before: int
    status: FoldStatus
    sections: tuple[SectionView, ...]
    #: How it came about: by what, for how long; empty for a caller's own summary.
    details: Mapping[str, Json]
    #: What whoever wrote the summary should know of it; only of one that is appended now.
    notes: tuple[Note, ...] = ()

    @property
    def tokens_after(self) -> int:
        """Tokens of all sections."""
        return sum(view.section.tokens for view in self.sections)


class FoldEvents:
    """Everything about folds that needs no summarizer."""

    def __init__(
        self,
        *,
        database: Database,
        log: EventLog,
        jobs: JobQueue,
        append_marker: AppendMarker,
    ) -> None:
        self._database = database
        self._log = log
        self._jobs = jobs
        self._append_marker = append_marker

    async def append_summary(self, summary: CallersSummary) -> tuple[FoldView, AppendResult]:
        """Fold what the summary covers, in the lane that it names.

        Raises:
            CompactionRangeError: nothing there can be folded.
            InvalidInputError: the content cannot stand for history.
        """
        _check_content(summary.parts)
        by_seqs = summary.seqs is not None
        request = FoldRequest(
            from_seq=summary.from_seq,
            to_seq=summary.to_seq,
            sections=(SectionRequest(summary.isolation_scope, summary.branch, summary.parts),),
            seqs=of_seqs(summary.seqs) if summary.seqs is not None else None,
            level=summary.level,
            is_staged=summary.is_staged,
        )
        result = await self._append_marker(
            NewMarker(
                key=summary.key,
                request=request,
                pointer="/seqs" if by_seqs else "/covers",
                size_pointer="/content",
                expected_seq=summary.expected_seq,
                idempotent=summary.idempotent,
            )
        )
        seq = result.appended[0].seq
        assert seq is not None
        view = await self.one(summary.key, seq)
        replaced = await self._tokens_replaced(summary.key, view)
        notes = (_no_shorter(view, replaced),) if view.tokens_after >= replaced else ()
        return replace(view, notes=(*summary.notes, *notes)), result

    async def _tokens_replaced(self, key: SessionKey, view: FoldView) -> int:
        """Return the tokens that requests lose by a fold once it is used: of events that were live,
        and of sections that are shown no more."""
        async with self._database.connection() as connection:
            markers = await self._log.markers(connection, key, view.seq)
            without = resolve([each for each in markers if each[0] < view.seq])
            used = replace(view.fold, is_staged=False)
            within = resolve([*(each for each in markers if each[0] < view.seq), (view.seq, used)])
            live = intersect(subtract(without.live, within.live), view.covers)
            tokens = await self._log.count_tokens(connection, key, live)
        folds = {seq: marker for seq, marker in markers if isinstance(marker, Fold)}
        shown = {(section.fold_seq, section.section_index) for section in within.sections}
        return tokens + sum(
            folds[section.fold_seq].sections[section.section_index].tokens
            for section in without.sections
            if (section.fold_seq, section.section_index) not in shown
        )

    async def one(self, key: SessionKey, seq: int) -> FoldView:
        """Return one fold.

        Raises:
            EventNotFoundError: there is no fold at this seq.
        """
        for view in await self._views(key, only=seq):
            return view
        raise EventNotFoundError(f"there is no compaction at seq {seq}")

    async def page(self, key: SessionKey, *, after_seq: int, limit: int) -> Sequence[FoldView]:
        """Return folds oldest first, at most ``limit``."""
        return await self._views(key, after_seq=after_seq, limit=limit)

    async def last_try(self, key: SessionKey) -> Job | None:
        """Return the job that looked last for something to fold; None where none is kept.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        async with self._database.connection() as connection:
            session = await self._log.find_session(connection, key)
            if session is None:
                raise SessionNotFoundError
            return await self._jobs.newest(connection, key, session.incarnation, KINDS)

    async def undo(
        self, key: SessionKey, seq: int, *, idempotent: IdempotentRequest | None = None
    ) -> AppendResult:
        """Take the effect of a marker back.

        Raises:
            EventNotFoundError: there is no such marker.
        """
        return await self._aim(key, seq, UndoRequest(seq), idempotent)

    async def activate(
        self, key: SessionKey, seq: int, *, idempotent: IdempotentRequest | None = None
    ) -> AppendResult:
        """Use a staged fold from now on.

        Raises:
            EventNotFoundError: there is no such marker.
            InvalidInputError: the fold is not staged, or has no effect any more.
        """
        return await self._aim(key, seq, ActivationRequest(seq), idempotent)

    async def _aim(
        self,
        key: SessionKey,
        seq: int,
        request: MarkerRequest,
        idempotent: IdempotentRequest | None,
    ) -> AppendResult:
        async with self._database.connection() as connection:
            await self._check_session(connection, key)
            target = await self._log.get_event(connection, key, seq)
        if target is None or target.marker is None:
            raise EventNotFoundError(f"there is no compaction at seq {seq}")
        return await self._append_marker(
            NewMarker(key=key, request=request, pointer="/path/seq", idempotent=idempotent)
        )

    async def _views(
        self,
        key: SessionKey,
        *,
        only: int | None = None,
        after_seq: int = 0,
        limit: int = 1,
    ) -> list[FoldView]:
        views: list[FoldView] = []
        async with self._database.connection() as connection:
            await self._check_session(connection, key)
            markers = await self._log.markers(connection, key)
            folds = [
                (seq, marker)
                for seq, marker in markers
                if isinstance(marker, Fold)
                and (seq == only if only is not None else seq > after_seq)
            ]
            context = _Context(markers)
            for seq, fold in folds[:limit]:
                views.append(await self._view(connection, key, seq, fold, context))
        return views

    async def _view(
        self,
        connection: Connection,
        key: SessionKey,
        seq: int,
        fold: Fold,
        context: "_Context",
    ) -> FoldView:
        covers = union(pair for section in fold.sections for pair in section.covers)
        not_holes = union((*covers, *context.marker_seqs))
        event = await self._log.get_event(connection, key, seq)
        assert event is not None
        status = context.statuses[seq]
        details, ledgers = _record(event)
        return FoldView(
            seq=seq,
            id=event.id,
            fold=fold,
            covers=covers,
            holes=subtract(((fold.from_seq, fold.to_seq),), not_holes),
            children=tuple(
                other
                for other, marker in context.markers
                if other < seq
                and isinstance(marker, Fold)
                and fold.from_seq <= marker.from_seq
                and marker.to_seq <= fold.to_seq
                and context.statuses[other] != "undone"
            ),
            tokens_before=await self._log.count_tokens(connection, key, covers),
            status=status,
            sections=tuple(
                SectionView(
                    section,
                    _section_status(status, (seq, number) in context.shown),
                    ledgers[number] if number < len(ledgers) else [],
                )
                for number, section in enumerate(fold.sections)
            ),
            details=details,
        )

    async def _check_session(self, connection: Connection, key: SessionKey) -> None:
        if await self._log.find_session(connection, key) is None:
            raise SessionNotFoundError


def _no_shorter(view: FoldView, tokens_replaced: int) -> Note:
    detail = (
        f"the summary takes {view.tokens_after} tokens in place of {tokens_replaced}: "
        "it makes requests no shorter"
    )
    return Note("/content", detail)


def _record(event: LoggedEvent) -> tuple[Mapping[str, Json], Sequence[Json]]:
    """Return what a fold's own text says beside what it does: details, and a ledger by section."""
    body = parse_json(event.raw)
    actions = body.get("actions") if isinstance(body, dict) else None
    fold = actions.get("fold") if isinstance(actions, dict) else None
    if not isinstance(fold, dict):
        return {}, []
    details, sections = fold.get("details"), fold.get("sections")
    ledgers = [
        section.get("ledger") or [] if isinstance(section, dict) else []
        for section in (sections if isinstance(sections, list) else [])
    ]
    return details if isinstance(details, dict) else {}, ledgers


class _Context:
    """What the markers of a session say of its folds."""

    def __init__(self, markers: Sequence[tuple[int, Marker]]) -> None:
        self.markers = markers
        self.marker_seqs = of_seqs(seq for seq, _ in markers)
        self.statuses: Mapping[int, FoldStatus] = fold_statuses(markers)
        sections = resolve(markers).sections
        self.shown = {(section.fold_seq, section.section_index) for section in sections}


def _section_status(status: FoldStatus, is_shown: bool) -> FoldStatus:  # noqa: FBT001
    """Return a section's own status: of an active fold, some may be superseded."""
    if status != "active":
        return status
    return "active" if is_shown else "superseded"


def _check_content(parts: Sequence[Part]) -> None:
    """Refuse what cannot stand for history: nothing, calls, blocks without a text twin, and
    thoughts, which some providers are never sent."""
    if all(is_blank(part) for part in parts):
        raise InvalidInputError("the summary is empty", pointer="/content")
    for number, part in enumerate(parts):
        pointer = f"/content/parts/{number}"
        if isinstance(part, FunctionCall | FunctionResponse | ExecutableCode | CodeExecutionResult):
            raise InvalidInputError("a summary holds no calls and no results", pointer=pointer)
        if part.thought and not isinstance(part, Opaque):
            raise InvalidInputError("a summary holds no thoughts", pointer=pointer)
        if isinstance(part, Opaque) and not part.text.strip():
            raise InvalidInputError("an opaque block needs its text twin", pointer=pointer)
