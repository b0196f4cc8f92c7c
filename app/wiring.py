"""The composition root: builds the stores, the providers and the services from the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.core.policy import DEFAULT_POLICY
from app.formats import CONVERTERS
from app.providers.clock import SystemClock
from app.providers.tokenizer import Tokenizer
from app.services.app_policies import ManageApps
from app.services.append_events import AppendEvents
from app.services.append_marker import AppendMarker
from app.services.authenticate import Authenticate, CreateKey
from app.services.bundle import Services
from app.services.check_health import CheckHealth
from app.services.compare_compiles import CompareCompiles
from app.services.compile_context import CompileContext
from app.services.compile_stateless import CompileStateless
from app.services.count_tokens import CountTokens
from app.services.fold_events import FoldEvents
from app.services.pin_events import PinEvents
from app.services.prepare_events import BatchLimits, EventPreparer
from app.services.read_events import ReadEvents
from app.services.resume_invocation import ResumeInvocation
from app.services.rewind_session import RewindSession
from app.services.schedule_compaction import ScheduleCompaction
from app.services.sessions import ManageSessions
from app.settings import Settings, SettingsError
from app.storage.api_keys import PgApiKeys
from app.storage.compaction_counters import PgCompactionCounters
from app.storage.compile_inputs import PgCompileInputs
from app.storage.database import PgDatabase
from app.storage.event_log import PgEventLog
from app.storage.idempotency import PgIdempotencyKeys
from app.storage.jobs import PgJobQueue
from app.storage.migrate import current_revision, head_revision
from app.storage.pool import create_engine
from app.storage.sessions import PgSessions


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Services]:
    """Give the services; connections are opened when they are first needed, and closed at the end.

    Args:
        settings: with the URL of a migrated database.

    Raises:
        SettingsError: there is no URL.
    """
    if settings.database_url is None:
        raise SettingsError({"FOLDLINE_DATABASE_URL": "is needed"})
    engine = create_engine(
        settings.database_url.get_secret_value(),
        size=settings.db_pool_size,
        pooler=settings.db_pooler,
    )
    try:
        yield _services(settings, PgDatabase(engine))
    finally:
        await engine.dispose()


def _services(settings: Settings, database: PgDatabase) -> Services:
    clock = SystemClock()
    tokens = Tokenizer()
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
    schedule = ScheduleCompaction(
        database=database,
        jobs=PgJobQueue(),
        counters=PgCompactionCounters(),
        default_policy=DEFAULT_POLICY,
        wake=lambda: None,
    )
    append_events = AppendEvents(
        database=database,
        log=log,
        sessions=sessions,
        keys=keys,
        preparer=preparer,
        tokens=tokens,
        schedule=schedule,
        clock=clock,
    )
    append_marker = AppendMarker(
        database=database, keys=keys, append_events=append_events, clock=clock
    )
    compile_context = CompileContext(
        database=database,
        log=log,
        inputs=PgCompileInputs(),
        append_events=append_events,
        tokens=tokens,
        token_method=tokens.method,
        tail_nudge=settings.tail_nudge,
        verify_compile=settings.verify_compile,
        min_seq_wait_ms=settings.min_seq_wait_ms,
    )
    read_events = ReadEvents(database=database, log=log, preparer=preparer)
    return Services(
        authenticate=_authenticate(settings, database),
        create_key=CreateKey(database=database, keys=PgApiKeys()),
        check_health=_check_health(database),
        sessions=ManageSessions(
            database=database,
            log=log,
            sessions=sessions,
            keys=keys,
            append_marker=append_marker,
        ),
        apps=ManageApps(database=database, sessions=sessions, default_policy=DEFAULT_POLICY),
        append_events=append_events,
        read_events=read_events,
        resume_invocation=ResumeInvocation(
            database=database, log=log, preparer=preparer, read_events=read_events
        ),
        rewind_session=RewindSession(append_marker=append_marker),
        pin_events=PinEvents(
            database=database,
            log=log,
            sessions=sessions,
            append_marker=append_marker,
            default_policy=DEFAULT_POLICY,
        ),
        fold_events=FoldEvents(database=database, log=log, append_marker=append_marker),
        compile_context=compile_context,
        compile_stateless=CompileStateless(
            preparer=preparer, compile_context=compile_context, clock=clock
        ),
        compare_compiles=CompareCompiles(
            database=database, log=log, compile_context=compile_context
        ),
        count_tokens=CountTokens(tokens=tokens, method=tokens.method, converters=CONVERTERS),
    )


def _authenticate(settings: Settings, database: PgDatabase) -> Authenticate:
    admin_key = settings.admin_key
    return Authenticate(
        database=database,
        keys=PgApiKeys(),
        is_on=settings.auth == "on",
        admin_key=admin_key.get_secret_value() if admin_key is not None else None,
    )


def _check_health(database: PgDatabase) -> CheckHealth:
    async def read_revision() -> str | None:
        async with database.connection() as connection:
            return await current_revision(connection)

    return CheckHealth(read_revision=read_revision, expected_revision=head_revision())
