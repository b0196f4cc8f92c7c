"""Protocols that the services need, and the plain values that cross them.

A service opens a transaction, hands its connection to the store's methods, and commits by leaving
the block; the store never commits. ``Connection`` is opaque here: only the storage knows what it
is.
"""

from app.ports.base import Clock, Connection, Database, SessionKey, TokenCounter, TokenMemory
from app.ports.checks import BodyAgain, Finding, LogCheck, LogChecks, RecordedReply
from app.ports.compactions import (
    CompactionCounters,
    CompactionRead,
    CompactionReads,
)
from app.ports.compiles import CacheUse, CacheUses, CompiledRequest, CompileInputs, TokenReports
from app.ports.jobs import JOBS_TOPIC, ClaimLimits, Hints, Job, JobQueue, JobStatus, NewJob
from app.ports.log import (
    CompactionStanding,
    EventFilter,
    EventLog,
    EventStatus,
    LockedSession,
    LoggedEvent,
    LogHead,
    LogRead,
    NewEvent,
    ReadBefore,
    ReadBeside,
)
from app.ports.metrics import (
    DatabaseFacts,
    DatabaseFactsReads,
    DatabaseMeter,
    Meter,
    RedisMeter,
    Written,
)
from app.ports.search import EventSearch, SearchHit, SearchQuery, SearchResult
from app.ports.sessions import IdempotencyKeys, KeptAnswer, NewSession, SessionRow, Sessions
from app.ports.summaries import SummaryAnswer, SummaryPrompt, SummaryProvider, SummarySpend
from app.ports.tenancy import (
    ApiKey,
    ApiKeys,
    AuditEntry,
    AuditLog,
    NewApiKey,
    Principal,
    RateLimits,
    TakenRequest,
    Tenant,
    Tenants,
)

__all__ = [
    "JOBS_TOPIC",
    "ApiKey",
    "ApiKeys",
    "AuditEntry",
    "AuditLog",
    "BodyAgain",
    "CacheUse",
    "CacheUses",
    "ClaimLimits",
    "Clock",
    "CompactionCounters",
    "CompactionRead",
    "CompactionReads",
    "CompactionStanding",
    "CompileInputs",
    "CompiledRequest",
    "Connection",
    "Database",
    "DatabaseFacts",
    "DatabaseFactsReads",
    "DatabaseMeter",
    "EventFilter",
    "EventLog",
    "EventSearch",
    "EventStatus",
    "Finding",
    "Hints",
    "IdempotencyKeys",
    "Job",
    "JobQueue",
    "JobStatus",
    "KeptAnswer",
    "LockedSession",
    "LogCheck",
    "LogChecks",
    "LogHead",
    "LogRead",
    "LoggedEvent",
    "Meter",
    "NewApiKey",
    "NewEvent",
    "NewJob",
    "NewSession",
    "Principal",
    "RateLimits",
    "ReadBefore",
    "ReadBeside",
    "RecordedReply",
    "RedisMeter",
    "SearchHit",
    "SearchQuery",
    "SearchResult",
    "SessionKey",
    "SessionRow",
    "Sessions",
    "SummaryAnswer",
    "SummaryPrompt",
    "SummaryProvider",
    "SummarySpend",
    "TakenRequest",
    "Tenant",
    "Tenants",
    "TokenCounter",
    "TokenMemory",
    "TokenReports",
    "Written",
]
