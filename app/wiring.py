"""The composition root: builds the stores, the providers and the services from the settings."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from app import __version__, revision
from app.core.canonical import Json
from app.core.model_rules import ModelRules
from app.core.policy import DEFAULT_POLICY, effective_policy
from app.formats import CONVERTERS, FORMATS
from app.formats.rules.loader import RulesError
from app.jobs.database_watch import DatabaseWatch
from app.jobs.registry import handlers
from app.jobs.worker import Worker, WorkerLimits
from app.observability.meter import Meter
from app.observability.metrics import Metrics
from app.observability.tracing import Tracer
from app.observability.tracing_meter import TracingMeter
from app.ports import JOBS_TOPIC, Hints, RateLimits, SummaryProvider
from app.providers import hints as hinting
from app.providers.clock import SystemClock
from app.providers.hints import LocalHints, RedisHints
from app.providers.json_api import new_client
from app.providers.measured import measured
from app.providers.model_rules import load_model_rules
from app.providers.rate_limits import LocalBuckets, RedisBuckets
from app.providers.redis import RedisLink
from app.providers.summarizers import summary_providers
from app.providers.tokenizer import RememberedCounts, Tokenizer
from app.services.activate_staged import ActivateStaged
from app.services.app_policies import ManageApps
from app.services.append_events import AppendEvents
from app.services.append_marker import AppendMarker
from app.services.authenticate import Authenticate
from app.services.bounded_spend import BoundedSpend
from app.services.bundle import Services
from app.services.check_health import CheckHealth
from app.services.compact_session import CompactSession
from app.services.compaction_jobs import KINDS
from app.services.compare_compiles import CompareCompiles
from app.services.compile_context import CompileContext
from app.services.compile_given import GivenInputs
from app.services.compile_session import CompileSession
from app.services.compile_stateless import CompileStateless
from app.services.count_tokens import CountTokens
from app.services.elide_events import ElideEvents
from app.services.enforce_quotas import EnforceQuotas
from app.services.expand_events import ExpandEvents
from app.services.expire_sessions import ExpireSessions
from app.services.explicit_caches import ExplicitCaches
from app.services.fold_events import FoldEvents
from app.services.follow_head import FollowHead
from app.services.forget_model import ForgetModel
from app.services.limit_rates import LimitRates
from app.services.manage_jobs import ManageJobs
from app.services.manage_keys import ManageKeys
from app.services.manage_tenants import ManageTenants
from app.services.pin_events import PinEvents
from app.services.prepare_events import BatchLimits, EventPreparer
from app.services.prove_replies import ProveReplies
from app.services.read_audit import ReadAudit
from app.services.read_events import ReadEvents
from app.services.read_for_compile import ReadForCompile
from app.services.recall_events import RecallEvents
from app.services.remember_compiles import RememberCompiles
from app.services.report_usage import ReportUsage
from app.services.request_compaction import RequestCompaction
from app.services.resume_invocation import ResumeInvocation
from app.services.rewind_session import RewindSession
from app.services.run_compile import RunCompile
from app.services.schedule_compaction import ScheduleCompaction
from app.services.sessions import ManageSessions
from app.services.settled_compiles import SettledCompiles
from app.services.stream_events import StreamEvents, StreamLimits
from app.services.verify_sessions import VerifySessions
from app.settings import Settings, SettingsError
from app.storage.api_keys import PgApiKeys
from app.storage.audit_log import PgAuditLog
from app.storage.cache_uses import PgCacheUses
from app.storage.compaction_counters import PgCompactionCounters
from app.storage.compile_inputs import PgCompileInputs
from app.storage.database import PgDatabase
from app.storage.database_facts import PgDatabaseFacts
from app.storage.event_log import PgEventLog
from app.storage.event_search import PgEventSearch
from app.storage.idempotency import PgIdempotencyKeys
from app.storage.jobs import PgJobQueue
from app.storage.log_checks import PgLogChecks
from app.storage.migrate import current_revision, head_revision, older_revisions
from app.storage.plan_facts import PgCompactionReads
from app.storage.pool import (
    STATEMENT_TIMEOUT_S,
    PoolName,
    connection_counts,
    create_engine,
    observed,
)
from app.storage.query_names import query_names
from app.storage.sessions import PgSessions
from app.storage.summary_spend import PgSummarySpend
from app.storage.tenants import PgTenants
from app.storage.token_reports import PgTokenReports


@dataclass(frozen=True, slots=True)
class Outside:
    """What is outside of the process, beside the database."""

    providers: Mapping[str, SummaryProvider]
    #: None: there is none.
    redis: RedisLink | None
    hints: Hints
    rate_limits: RateLimits


@dataclass(frozen=True, slots=True)
class Parts:
    """What a process may run: the services of the edges, and a worker that is not running yet."""

    services: Services
    worker: Worker
    #: To run beside the worker.
    database_watch: DatabaseWatch
    #: Writes behind the answers; to be closed.
    compiles: RememberCompiles


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a process counts, and into what. One for a process, made before anything runs."""

    metrics: Metrics
    meter: Meter
    #: Models are counted by what these know of them.
    rules: ModelRules
    #: None: nothing is traced.
    tracer: Tracer | None = None

    def tracing(self) -> AbstractContextManager[None]:
        """Send traces while the block runs, if there is somebody to send them to."""
        return nullcontext() if self.tracer is None else self.tracer.running()


def build_telemetry(settings: Settings, *, service: str = "foldline") -> Telemetry:
    """Return what a process counts with, and what traces call it.

    Raises:
        SettingsError: the file of model rules cannot be used.
    """
    metrics, rules = Metrics(), model_rules(settings)
    metrics.gauge("build_info").labels(
        __version__, revision(), head_revision() or "none", rules.date
    ).set(1)
    names = query_names()
    if settings.otlp_endpoint is None:
        return Telemetry(metrics, Meter(metrics, rules, names), rules)
    tracer = Tracer(settings.otlp_endpoint, service=service, version=__version__)
    meter = TracingMeter(metrics, rules, names, tracer=tracer)
    return Telemetry(metrics, meter, rules, tracer)


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Services]:
    """Give the services alone; as :func:`build_parts`."""
    async with build_parts(settings) as parts:
        yield parts.services


@asynccontextmanager
async def build_parts(
    settings: Settings,
    telemetry: Telemetry | None = None,
    *,
    application_name: str = "foldline",
    statement_timeout_s: float = STATEMENT_TIMEOUT_S,
    only_reads: bool = False,
) -> AsyncIterator[Parts]:
    """Give what runs; connections are opened when they are first needed, and closed at the end.

    Args:
        settings: with the URL of a migrated database.
        telemetry: the process's; None: what happens is counted for nobody.
        application_name: by which the database knows the process.
        statement_timeout_s: after this the database cancels a statement.
        only_reads: nothing will be written, so that a database that takes no writes will do.

    Raises:
        SettingsError: there is no URL.
    """
    if settings.database_url is None:
        raise SettingsError({"FOLDLINE_DATABASE_URL": "is needed"})
    telemetry = telemetry or build_telemetry(settings)
    engine = create_engine(
        settings.database_url.get_secret_value(),
        size=settings.db_pool_size,
        pooler=settings.db_pooler,
        application_name=application_name,
        statement_timeout_s=statement_timeout_s,
        is_replica=only_reads,
    )
    engine_of_replica, replica = None, None
    if settings.database_ro_url is not None:
        engine_of_replica = create_engine(
            settings.database_ro_url.get_secret_value(),
            size=settings.db_pool_size,
            pooler=settings.db_pooler,
            application_name=application_name,
            statement_timeout_s=statement_timeout_s,
            is_replica=True,
        )
        replica = PgDatabase(_counted(telemetry, engine_of_replica, "ro"))
    try:
        async with _outside(settings, telemetry) as outside:
            database = PgDatabase(_counted(telemetry, engine, "rw"), appended=outside.hints.tell)
            parts = _parts(settings, telemetry, database, replica, outside)
            try:
                yield parts
            finally:
                await parts.services.stream_events.close()
                await parts.compiles.close()
    finally:
        await engine.dispose()
        if engine_of_replica is not None:
            await engine_of_replica.dispose()


def _counted(telemetry: Telemetry, engine: AsyncEngine, pool: PoolName) -> AsyncEngine:
    """Return the engine, whose connections and statements are counted."""
    gauge = telemetry.metrics.gauge("db_pool_connections")

    def refresh() -> None:
        for state, count in connection_counts(engine).items():
            gauge.labels(pool, state).set(count)

    telemetry.metrics.before_scrape(refresh)
    return observed(engine, telemetry.meter, pool=pool)


@asynccontextmanager
async def _outside(settings: Settings, telemetry: Telemetry) -> AsyncIterator[Outside]:
    """Give what is outside; connections are opened when they are first needed."""
    async with new_client() as client:
        providers = _providers(settings, client, telemetry.meter)
        if settings.redis_url is None:
            yield Outside(providers, None, LocalHints(), LocalBuckets())
            return
        link = RedisLink(settings.redis_url.get_secret_value(), telemetry.meter)
        hints = RedisHints(link)
        is_up = telemetry.metrics.gauge("redis_up")
        telemetry.metrics.before_scrape(lambda: is_up.labels("commands").set(link.is_up))
        telemetry.metrics.before_scrape(lambda: is_up.labels("subscribe").set(hints.is_connected))
        try:
            async with hinting.running(hints):
                yield Outside(providers, link, hints, RedisBuckets(link, LocalBuckets()))
        finally:
            await link.close()


def _parts(
    settings: Settings,
    telemetry: Telemetry,
    database: PgDatabase,
    replica: PgDatabase | None,
    outside: Outside,
) -> Parts:
    clock, meter = SystemClock(), telemetry.meter
    tokens = Tokenizer()
    remembered = RememberedCounts(tokens)
    preparer = EventPreparer(
        converters=CONVERTERS,
        tokens=tokens,
        limits=BatchLimits(
            max_event_bytes=settings.max_event_bytes,
            max_batch_events=settings.max_batch_events,
        ),
    )
    log = PgEventLog(preparer.derive)
    sessions = PgSessions()
    keys = PgIdempotencyKeys()
    jobs, counters = PgJobQueue(), PgCompactionCounters()
    reports, rules = PgTokenReports(), telemetry.rules
    default_policy = _default_policy(settings)
    audit, tenants, api_keys = PgAuditLog(), PgTenants(), PgApiKeys()
    quotas = EnforceQuotas(database=database, tenants=tenants)
    authenticate = _authenticate(settings, database, api_keys)
    schedule = ScheduleCompaction(
        database=database,
        jobs=jobs,
        counters=counters,
        default_policy=default_policy,
        wake=lambda: outside.hints.tell(JOBS_TOPIC),
    )
    append_events = AppendEvents(
        database=database,
        log=log,
        sessions=sessions,
        keys=keys,
        preparer=preparer,
        tokens=tokens,
        schedule=schedule,
        activate_staged=ActivateStaged(cache_uses=PgCacheUses(), preparer=preparer, clock=clock),
        quotas=quotas,
        follow=FollowHead(
            database=database, log=log, schedule=schedule, quotas=quotas, count=tokens.count
        ),
        clock=clock,
        meter=meter,
    )
    append_marker = AppendMarker(
        database=database,
        log=log,
        keys=keys,
        append_events=append_events,
        clock=clock,
        meter=meter,
    )
    compiles = RememberCompiles(database=database, reports=reports, meter=meter)
    compile_context = CompileContext(
        database=database,
        replica=replica,
        log=log,
        given=GivenInputs(inputs=PgCompileInputs(), reports=reports, rules=rules),
        compiles=compiles,
        settled=SettledCompiles(max_bytes=settings.compile_cache_bytes),
        caches=ExplicitCaches(log=log, clock=clock),
        append_events=append_events,
        read=ReadForCompile(log=log, min_seq_wait_ms=settings.min_seq_wait_ms),
        run=RunCompile(
            tokens=remembered,
            tail_nudge=settings.tail_nudge,
            call_signature_sentinel=settings.call_signature_sentinel,
        ),
        token_method=tokens.method,
        meter=meter,
        verify_compile=settings.verify_compile,
    )
    read_events = ReadEvents(database=database, log=log, preparer=preparer)
    streams = StreamEvents(
        database=database,
        log=log,
        read_events=read_events,
        hints=outside.hints,
        limits=StreamLimits(
            max_streams=settings.max_streams, tenant_streams=settings.tenant_streams
        ),
    )
    sse_clients = telemetry.metrics.gauge("sse_clients")
    telemetry.metrics.before_scrape(lambda: sse_clients.set(streams.count))
    reads = PgCompactionReads(log, preparer.derive, remembered.count)
    recall_events = RecallEvents(database=database, log=log, search=PgEventSearch(), meter=meter)
    fold_events = FoldEvents(database=database, log=log, jobs=jobs, append_marker=append_marker)
    spend = BoundedSpend(
        database=database,
        jobs=jobs,
        spend=PgSummarySpend(),
        count=tokens.count,
        most_tokens=settings.tenant_summary_tokens,
    )
    compact_session = CompactSession(
        database=database,
        reads=reads,
        log=log,
        jobs=jobs,
        counters=counters,
        append_marker=append_marker,
        schedule=schedule,
        providers=outside.providers,
        spend=spend,
        tokens=tokens,
        meter=meter,
    )
    worker = Worker(
        database=database,
        queue=jobs,
        handlers=handlers(compact_session),
        meter=meter,
        sweeps=(ExpireSessions(database=database, sessions=sessions), spend.forget_old_days),
        limits=WorkerLimits(
            jobs=settings.worker_jobs,
            per_tenant=settings.tenant_jobs,
            lease_s=settings.job_lease_s,
        ),
    )
    # A hint that may have been lost may have been about a job.
    outside.hints.listen(lambda topic: worker.wake() if topic in (JOBS_TOPIC, None) else None)
    services = Services(
        authenticate=authenticate,
        limit_rates=LimitRates(limits=outside.rate_limits, default=settings.default_rate_limit),
        keys=ManageKeys(
            database=database, keys=api_keys, audit=audit, forget_keys=authenticate.forget
        ),
        tenants=ManageTenants(
            database=database,
            tenants=tenants,
            audit=audit,
            forget_limits=_both(authenticate.forget, quotas.forget),
        ),
        read_audit=ReadAudit(database=database, audit=audit),
        check_health=_check_health(settings, database, outside.redis),
        sessions=ManageSessions(
            database=database,
            log=log,
            sessions=sessions,
            keys=keys,
            append_marker=append_marker,
            quotas=quotas,
        ),
        apps=ManageApps(
            database=database, sessions=sessions, audit=audit, default_policy=default_policy
        ),
        append_events=append_events,
        read_events=read_events,
        stream_events=streams,
        verify_sessions=VerifySessions(
            database=database,
            checks=PgLogChecks(preparer.derive, preparer.read_again),
            prove=ProveReplies(compile_context=compile_context, formats=FORMATS, rules=rules),
        ),
        resume_invocation=ResumeInvocation(
            database=database, log=log, preparer=preparer, read_events=read_events
        ),
        rewind_session=RewindSession(append_marker=append_marker),
        pin_events=PinEvents(
            database=database,
            log=log,
            sessions=sessions,
            append_marker=append_marker,
            default_policy=default_policy,
        ),
        fold_events=fold_events,
        recall_events=recall_events,
        elide_events=ElideEvents(
            database=database,
            log=log,
            preparer=preparer,
            count=tokens.count,
            append_marker=append_marker,
        ),
        expand_events=ExpandEvents(
            database=database,
            log=log,
            read_events=read_events,
            recall_events=recall_events,
            meter=meter,
        ),
        compile_context=compile_context,
        compile_session=CompileSession(
            compile_context=compile_context, schedule=schedule, meter=meter
        ),
        compile_stateless=CompileStateless(
            preparer=preparer, compile_context=compile_context, clock=clock, meter=meter
        ),
        compare_compiles=CompareCompiles(
            database=database,
            log=log,
            compile_context=compile_context,
            currency=rules.currency,
        ),
        count_tokens=CountTokens(
            tokens=tokens, method=tokens.method, converters=CONVERTERS, rules=rules
        ),
        report_usage=ReportUsage(
            database=database,
            event_log=log,
            reports=reports,
            compiles=compiles,
            rules=rules,
            schedule=schedule,
            meter=meter,
        ),
        forget_model=ForgetModel(database=database, reports=reports, audit=audit),
        request_compaction=RequestCompaction(
            database=database,
            reads=reads,
            jobs=jobs,
            keys=keys,
            schedule=schedule,
            fold_events=fold_events,
        ),
        jobs=ManageJobs(database=database, jobs=jobs),
        rules_date=rules.date,
    )
    watch = DatabaseWatch(
        database=database, facts=PgDatabaseFacts(), meter=meter, kinds=KINDS, replica=replica
    )
    return Parts(services, worker, watch, compiles)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def model_rules(settings: Settings) -> ModelRules:
    """Return the model rules that the settings ask for.

    Raises:
        SettingsError: their file cannot be used.
    """
    try:
        return load_model_rules(settings.model_rules)
    except RulesError as error:
        raise SettingsError({"FOLDLINE_MODEL_RULES": str(error)}) from error


def _default_policy(settings: Settings) -> dict[str, Json]:
    by_settings: dict[str, Json] = {"summarizer": {"kind": settings.summarizer}}
    return effective_policy(settings.default_policy, by_settings, DEFAULT_POLICY)


def _providers(
    settings: Settings, client: httpx.AsyncClient, meter: Meter
) -> Mapping[str, SummaryProvider]:
    api_key = settings.summarizer_api_key
    providers = summary_providers(
        client,
        kind=settings.summarizer,
        url=settings.summarizer_url,
        model=settings.summarizer_model,
        api_key=None if api_key is None else api_key.get_secret_value(),
        timeout_s=settings.summarizer_timeout_s,
    )
    return measured(providers, model=settings.summarizer_model, meter=meter)


def _authenticate(settings: Settings, database: PgDatabase, keys: PgApiKeys) -> Authenticate:
    admin_key = settings.admin_key
    return Authenticate(
        database=database,
        keys=keys,
        is_on=settings.auth == "on",
        admin_key=admin_key.get_secret_value() if admin_key is not None else None,
    )


def _check_health(settings: Settings, database: PgDatabase, redis: RedisLink | None) -> CheckHealth:
    is_required = redis is not None and settings.redis_required
    return CheckHealth(
        read_revision=partial(current_revision, database.engine),
        expected_revision=head_revision(),
        older_revisions=older_revisions(),
        required={"redis": redis.answers} if is_required and redis is not None else {},
    )
