"""Fold a part of a session: plan, summarize, look again, append.

    read a snapshot -> plan -> let go of the database
    summarize every lane: seconds or minutes, no transaction open
    lock the session -> does the plan still stand? -> append the fold and end the job, at once
                     -> or plan anew, a bounded number of times

The job's row is locked after the session's, and its fencing token checked, in the transaction that
appends: whoever lost the job appends nothing, so a range is folded once however many raced.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from app.core.canonical import Json
from app.core.compaction.due import due_moment
from app.core.compaction.ledger import SectionText, ledger_json, parse_section, print_section
from app.core.compaction.planned import Nothing, Plan, PlannedSection
from app.core.compaction.policy import CompactionPolicy, SummarizerPolicy
from app.core.compaction.summary import SectionSummary
from app.core.contents import Opaque, Part, Text
from app.core.copying import replace
from app.core.errors import (
    CompactionRangeError,
    LeaseLostError,
    PlanOvertakenError,
    SummaryRefusedError,
)
from app.core.events import Fold, FoldRequest
from app.core.index import Index
from app.core.lanes import Lane
from app.core.ranges import EMPTY, Ranges, Silent, intersect, union
from app.ports import (
    CompactionCounters,
    CompactionRead,
    CompactionReads,
    CompactionStanding,
    Connection,
    Database,
    EventLog,
    Job,
    JobQueue,
    LockedSession,
    Meter,
    NewJob,
    SummaryProvider,
    TokenCounter,
)
from app.services.append_events import AppendStep
from app.services.append_marker import AppendMarker, NewMarker
from app.services.bounded_spend import BoundedSpend
from app.services.compaction_jobs import COMPACT, Asked
from app.services.schedule_compaction import ScheduleCompaction
from app.services.summarize_events import summarize_events

#: How often a plan may be overtaken within one claim of the job.
MAX_PLANS: Final = 5
#: From then on no model is asked, and code takes over.
SUMMARIZE_TIMEOUT_S: Final = 300.0

Summaries = Mapping[Lane, SectionSummary]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """A plan, and what it was made from."""

    job: Job
    read: CompactionRead
    policy: CompactionPolicy
    summarizer: SummarizerPolicy
    plan: Plan


class CompactSession:
    """Does what a compaction job asks."""

    def __init__(
        self,
        *,
        database: Database,
        reads: CompactionReads,
        log: EventLog,
        jobs: JobQueue,
        counters: CompactionCounters,
        append_marker: AppendMarker,
        schedule: ScheduleCompaction,
        providers: Mapping[str, SummaryProvider],
        spend: BoundedSpend,
        tokens: TokenCounter,
        meter: Meter,
    ) -> None:
        self._database = database
        self._reads = reads
        self._log = log
        self._jobs = jobs
        self._counters = counters
        self._append_marker = append_marker
        self._schedule = schedule
        self._providers = providers
        self._spend = spend
        self._tokens = tokens
        self._meter = meter

    async def __call__(self, job: Job) -> None:
        """Fold what the job asks for, or find that there is nothing; ends the job either way.

        Raises:
            LeaseLostError: the job is someone else's, or cancelled; nothing was appended.
            PlanOvertakenError: the session changed under every plan.
            StorageError: the database is not there; nothing is known to be appended.
        """
        for _ in range(MAX_PLANS - 1):
            try:
                return await self._attempt(job)
            except PlanOvertakenError:
                log.info("compaction_replanned", job_id=str(job.id))
        return await self._attempt(job)

    async def _attempt(self, job: Job) -> None:
        asked = Asked.of(job.payload)
        async with self._database.snapshot() as connection:
            read = await self._reads.read(
                connection,
                job.key,
                partial(self._policy, asked),
                projected_tokens=asked.projected_tokens,
            )
        if read is None or read.session.incarnation != job.incarnation:
            return await self._end_without_session(job)
        policy = self._policy(asked, read.standing)
        summarizer = self._summarizer(read.standing, asked)
        if summarizer.kind == "none":
            found: Plan | Nothing = Nothing("nothing_due", "the policy has no summarizer")
        else:
            # Beside the loop: a long session takes a while.
            found = await asyncio.to_thread(asked.plan, read.facts, policy)
        if isinstance(found, Nothing):
            result: dict[str, Json] = {"reason": found.reason, "detail": found.detail}
            self._count_end(job, asked.reason, summarizer, "skipped")
            return await self._end_unfolded(job, read, policy, result)
        work = _Work(job, read, policy, summarizer, found)
        started_s = time.monotonic()
        try:
            # Nothing of the database is held while a model is asked.
            summaries = await self._summarize(work)
        except SummaryRefusedError as error:
            self._count_end(job, found.moment, summarizer, "no_progress")
            return await self._end_unfolded(job, read, policy, _refusal(found, read, error))
        duration_s = time.monotonic() - started_s
        request = _fold_request(work, summaries, duration_s=duration_s)
        try:
            is_appended = await self._append(work, request)
        except (PlanOvertakenError, LeaseLostError):
            self._count_end(job, found.moment, summarizer, "conflict")
            raise
        if is_appended:
            self._count_fold(work, summaries, duration_s)
        return None

    def _count_end(
        self, job: Job, moment: str | None, summarizer: SummarizerPolicy, outcome: str
    ) -> None:
        is_by_code = summarizer.kind in ("extractive", "none")
        self._meter.compaction_ended(
            trigger=_trigger(job, moment),
            method="deterministic" if is_by_code else "llm",
            outcome=outcome,
        )

    def _count_fold(self, work: _Work, summaries: Summaries, duration_s: float) -> None:
        made = [each for each in summaries.values() if not each.parts]
        is_by_model = any(each.method != "extractive" for each in made)
        method = "llm" if is_by_model else "deterministic"
        has_failed = not is_by_model and work.summarizer.kind != "extractive"
        self._meter.compaction_ended(
            trigger=_trigger(work.job, work.plan.moment),
            method=method,
            outcome="llm_error" if has_failed else "ok",
        )
        self._meter.folded(
            method=method,
            duration_s=duration_s,
            tokens_before=sum(section.tokens_before for section in work.plan.kept(summaries)),
            tokens_after=sum(summary.tokens for summary in summaries.values()),
        )

    # Policy

    def _policy(self, asked: Asked, standing: CompactionStanding) -> CompactionPolicy:
        effective = self._schedule.policy_of(standing.policy, standing.app_policy)
        return CompactionPolicy.of(effective, window_tokens=asked.window_tokens)

    def _summarizer(self, standing: CompactionStanding, asked: Asked) -> SummarizerPolicy:
        if asked.summarizer is not None:
            return SummarizerPolicy.of({"summarizer": dict(asked.summarizer)})
        return SummarizerPolicy.of(self._schedule.policy_of(standing.policy, standing.app_policy))

    # Summarizing

    async def _summarize(self, work: _Work) -> Summaries:
        """Return a summary for every lane that can have one.

        Raises:
            SummaryRefusedError: no lane can, or all of them together save nothing.
        """
        summaries: dict[Lane, SectionSummary] = {}
        refused: SummaryRefusedError | None = None
        deadline_s = asyncio.get_running_loop().time() + SUMMARIZE_TIMEOUT_S
        for section in work.plan.sections:
            carried = _carried(section, work.read) if section.is_carried else None
            if carried is not None and section.is_kept:
                summaries[section.lane] = carried
                continue
            try:
                summaries[section.lane] = await self._summary(work, section, deadline_s)
            except SummaryRefusedError as error:
                refused = refused or error
                if carried is not None:
                    summaries[section.lane] = carried
        kept = work.plan.kept(summaries)
        if not kept:
            assert refused is not None
            raise refused
        summaries = {section.lane: summaries[section.lane] for section in kept}
        tokens = sum(summary.tokens for summary in summaries.values())
        tokens_before = sum(section.tokens_before for section in kept)
        if tokens >= tokens_before:
            detail = f"summaries of {tokens} tokens in place of {tokens_before}"
            raise SummaryRefusedError(detail, reason="not_smaller")
        return summaries

    async def _summary(
        self, work: _Work, section: PlannedSection, deadline_s: float
    ) -> SectionSummary:
        return await summarize_events(
            tuple(
                work.read.events[seq]
                for start, end in section.seqs
                for seq in range(start, end + 1)
                if seq in work.read.events
            ),
            seed=_seed(section, work.read),
            lane=section.lane,
            policy=work.summarizer,
            provider=self._spend.of(self._providers.get(work.summarizer.kind), work.job),
            counter=self._tokens,
            deadline=deadline_s,
            most_tokens=section.most_tokens,
            tokens_before=section.tokens_before,
        )

    # Appending, and ending the job: the session is locked first, then the job

    async def _append(self, work: _Work, request: FoldRequest) -> bool:
        """Append the fold and end the job; return False when the session is gone."""
        job = work.job
        foreseen = await self._append_marker.foresee(NewMarker(key=job.key, request=request))
        async with self._database.transaction() as connection:
            session = await self._locked(connection, job)
            if session is None:
                return False
            if not await self._stands(connection, work, session):
                raise PlanOvertakenError
            try:
                step = await self._append_marker.insert(connection, session, foreseen)
            except CompactionRangeError as error:
                raise PlanOvertakenError from error
            fold = _fold_of(step)
            silent = step.facts.silent
            has_moved = session.head_seq != work.read.session.head_seq
            if has_moved and not _is_as_planned(fold, request, silent):
                # A result or a reply came that makes other holes than were planned with.
                raise PlanOvertakenError
            result: dict[str, Json] = {
                "folded": sum(silent.count_events(section.covers) for section in fold.sections),
                "seq": step.rows[0].event.seq,
                "reason": work.plan.moment,
            }
            await self._jobs.finish(connection, job, "done", result=result)
            has_more = await self._settle_folded(connection, work, step.facts.index)
        self._append_marker.count(step, source="worker")
        log.info("compaction_appended", job_id=str(job.id), moment=work.plan.moment)
        if has_more:
            self._schedule.wake()
        return True

    async def _locked(self, connection: Connection, job: Job) -> LockedSession | None:
        """Lock session and job; None when the session is gone, and the job with it."""
        started_s = time.perf_counter()
        session = await self._log.lock_session(connection, job.key)
        self._meter.lock_waited("fold", time.perf_counter() - started_s)
        if session is None or session.incarnation != job.incarnation:
            error: dict[str, Json] = {"code": "not_found", "detail": "the session was erased"}
            await self._jobs.finish(connection, job, "cancelled", error=error)
            return None
        if not await self._jobs.hold(connection, job):
            raise LeaseLostError
        return session

    async def _stands(self, connection: Connection, work: _Work, session: LockedSession) -> bool:
        """Tell whether what was planned is read now as it was then."""
        then = work.read.session
        if session.head_seq == then.head_seq:
            return True
        span: Ranges = ((work.plan.from_seq, work.plan.to_seq),)
        if _within(session.index, span) != _within(then.index, span):
            return False
        # A staged fold shows nowhere yet, and counts as one that is in use.
        return not any(
            isinstance(marker, Fold) and intersect(((marker.from_seq, marker.to_seq),), span)
            for _, marker in await self._log.markers(
                connection, work.job.key, after_seq=then.head_seq
            )
        )

    async def _settle_folded(self, connection: Connection, work: _Work, index: Index) -> bool:
        """Bring the counters up to date; leave a job if there may be more to fold."""
        job = work.job
        standing = await self._counters.standing(connection, job.key)
        assert standing is not None
        counters = standing.counters
        if work.plan.moment == "interval":
            left = max(0, counters.invocations_new - work.policy.compaction_interval)
            counters = replace(counters, invocations_new=left)
            await self._counters.settle(connection, job.key, invocations_new=left, tokens_tried=0)
        folds = {shown.fold_seq for shown in index.sections}
        is_due = due_moment(work.policy, counters) or len(folds) >= work.policy.fanout
        if job.kind != COMPACT or not is_due:
            return False
        await self._follow_up(connection, job)
        return True

    async def _end_unfolded(
        self, job: Job, read: CompactionRead, policy: CompactionPolicy, result: Mapping[str, Json]
    ) -> None:
        """End the job without a fold, and see that the same is not looked for at once again."""
        has_more = False
        async with self._database.transaction() as connection:
            if await self._locked(connection, job) is None:
                return
            await self._jobs.finish(connection, job, "done", result={"folded": 0, **result})
            if job.kind == COMPACT:
                has_more = await self._settle_unfolded(connection, job, read, policy)
        log.info("compaction_skipped", job_id=str(job.id), reason=result["reason"])
        if has_more:
            self._schedule.wake()

    async def _settle_unfolded(
        self, connection: Connection, job: Job, read: CompactionRead, policy: CompactionPolicy
    ) -> bool:
        """Note what was found for what was there; what came since counts anew."""
        standing = await self._counters.standing(connection, job.key)
        assert standing is not None
        then, now = read.standing.counters, standing.counters
        tried = max(then.tokens_live, read.facts.projected_tokens or 0)
        came_since = max(0, now.invocations_new - then.invocations_new)
        settled = replace(
            now,
            invocations_new=min(then.invocations_new, policy.compaction_interval - 1) + came_since,
            # What was small then says nothing of what is large now.
            tokens_tried=tried if tried >= (policy.trigger_tokens or 0) else 0,
        )
        await self._counters.settle(
            connection,
            job.key,
            invocations_new=settled.invocations_new,
            tokens_tried=settled.tokens_tried,
        )
        if due_moment(policy, settled) is None:
            return False
        # It became due while this job was open, and could not have another of its own.
        await self._follow_up(connection, job)
        return True

    async def _follow_up(self, connection: Connection, job: Job) -> None:
        window_tokens = Asked.of(job.payload).window_tokens
        payload = Asked(reason="follow_up", window_tokens=window_tokens).payload
        again = NewJob(key=job.key, incarnation=job.incarnation, kind=COMPACT, payload=payload)
        await self._jobs.enqueue(connection, again)

    async def _end_without_session(self, job: Job) -> None:
        async with self._database.transaction() as connection:
            await self._locked(connection, job)


# What is summarized, and what is made of it


def _trigger(job: Job, moment: str | None) -> str:
    """Return why a compaction was made, as it is counted."""
    if job.kind != COMPACT:
        return "manual"
    return "interval" if moment == "interval" else "tokens"


def _seed(section: PlannedSection, read: CompactionRead) -> str | None:
    """Return the text of the sections that this one supersedes, joined into one."""
    folds = {seq: marker for seq, marker in read.facts.markers if isinstance(marker, Fold)}
    texts = [
        _text(part)
        for fold_seq in section.seed_fold_seqs
        for told in folds[fold_seq].sections
        if told.lane == section.lane
        for part in told.parts
    ]
    if len(texts) <= 1:
        return texts[0] if texts else None
    records = [parse_section(text) or SectionText(story=_lines(text)) for text in texts]
    return print_section(
        SectionText(
            tuple(line for record in records for line in record.ledger),
            tuple(line for record in records for line in record.story),
        )
    )


def _carried(section: PlannedSection, read: CompactionRead) -> SectionSummary:
    """Return an earlier section as it is."""
    folds = {seq: marker for seq, marker in read.facts.markers if isinstance(marker, Fold)}
    told = next(
        told for told in folds[section.seed_fold_seqs[0]].sections if told.lane == section.lane
    )
    text = "\n".join(map(_text, told.parts))
    record = parse_section(text)
    return SectionSummary(
        text=text,
        ledger=record.ledger if record is not None else (),
        tokens=told.tokens,
        method="carried",
        parts=told.parts,
    )


def _text(part: Part) -> str:
    return part.text if isinstance(part, Text | Opaque) else ""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _fold_request(work: _Work, summaries: Summaries, *, duration_s: float) -> FoldRequest:
    """Return the fold, with what there is to say of how it came about."""
    parts: dict[Lane, tuple[Part, ...]] = {
        lane: summary.parts or (Text(text=summary.text),) for lane, summary in summaries.items()
    }
    request = work.plan.fold_request(parts)
    return replace(
        request,
        sections=tuple(
            replace(section, ledger=ledger_json(summary.ledger))
            for section, summary in zip(
                request.sections, _in_order(work.plan, summaries), strict=True
            )
        ),
        details=_details(work, summaries, duration_s),
    )


def _in_order(plan: Plan, summaries: Summaries) -> list[SectionSummary]:
    return [summaries[section.lane] for section in plan.sections if section.lane in summaries]


def _details(work: _Work, by_lane: Summaries, duration_s: float) -> Json:
    summaries = _in_order(work.plan, by_lane)
    # What is only carried says nothing of how this fold came about.
    first = next((each for each in summaries if not each.parts), summaries[0]).details()
    fallbacks = [summary.fallback_reason for summary in summaries if summary.fallback_reason]
    return {
        **first,
        "usage": {
            "input_tokens": sum(summary.input_tokens for summary in summaries),
            "output_tokens": sum(summary.output_tokens for summary in summaries),
        },
        "attempts": sum(summary.attempts for summary in summaries),
        "fallback_reason": fallbacks[0] if fallbacks else None,
        "duration_ms": round(duration_s * 1000),
        "moment": work.plan.moment,
        "tokens_before": sum(section.tokens_before for section in work.plan.kept(by_lane)),
        "tokens_after": sum(summary.tokens for summary in summaries),
        "job_id": str(work.job.id),
    }


def _refusal(plan: Plan, read: CompactionRead, error: SummaryRefusedError) -> dict[str, Json]:
    covers: list[Json] = [[start, end] for start, end in plan.covers]
    return {
        "reason": error.reason,
        "detail": error.detail,
        "refused": {"covers": covers, "since_seq": read.session.head_seq},
    }


def _fold_of(step: AppendStep) -> Fold:
    fold = step.rows[0].event.marker
    assert isinstance(fold, Fold)
    return fold


def _is_as_planned(fold: Fold, request: FoldRequest, silent: Silent) -> bool:
    """Tell whether a fold covers the events that it was planned to cover."""
    covers = union(pair for section in fold.sections for pair in section.covers)
    return silent.bridge(covers) == silent.bridge(request.seqs or EMPTY)


def _within(index: Index, span: Ranges) -> object:
    """Return how the events of a span are read, in a form that can be compared."""
    shown = [
        (section.fold_seq, section.lane, intersect(section.belongs, span))
        for section in index.sections
    ]
    return (
        intersect(index.live, span),
        intersect(index.rewound, span),
        intersect(index.pinned, span),
        [each for each in shown if each[2]],
    )
