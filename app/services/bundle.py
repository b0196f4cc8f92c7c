"""The services that the edges use, as one value."""

from dataclasses import dataclass

from app.services.app_policies import ManageApps
from app.services.append_events import AppendEvents
from app.services.authenticate import Authenticate
from app.services.check_health import CheckHealth
from app.services.compare_compiles import CompareCompiles
from app.services.compile_context import CompileContext
from app.services.compile_session import CompileSession
from app.services.compile_stateless import CompileStateless
from app.services.count_tokens import CountTokens
from app.services.elide_events import ElideEvents
from app.services.expand_events import ExpandEvents
from app.services.fold_events import FoldEvents
from app.services.forget_model import ForgetModel
from app.services.limit_rates import LimitRates
from app.services.manage_jobs import ManageJobs
from app.services.manage_keys import ManageKeys
from app.services.manage_tenants import ManageTenants
from app.services.pin_events import PinEvents
from app.services.read_audit import ReadAudit
from app.services.read_events import ReadEvents
from app.services.recall_events import RecallEvents
from app.services.report_usage import ReportUsage
from app.services.request_compaction import RequestCompaction
from app.services.resume_invocation import ResumeInvocation
from app.services.rewind_session import RewindSession
from app.services.sessions import ManageSessions
from app.services.stream_events import StreamEvents
from app.services.verify_sessions import VerifySessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Built once by the composition root."""

    authenticate: Authenticate
    limit_rates: LimitRates
    keys: ManageKeys
    tenants: ManageTenants
    read_audit: ReadAudit
    check_health: CheckHealth
    sessions: ManageSessions
    apps: ManageApps
    append_events: AppendEvents
    read_events: ReadEvents
    stream_events: StreamEvents
    verify_sessions: VerifySessions
    resume_invocation: ResumeInvocation
    rewind_session: RewindSession
    pin_events: PinEvents
    fold_events: FoldEvents
    recall_events: RecallEvents
    expand_events: ExpandEvents
    elide_events: ElideEvents
    compile_context: CompileContext
    compile_session: CompileSession
    compile_stateless: CompileStateless
    compare_compiles: CompareCompiles
    count_tokens: CountTokens
    report_usage: ReportUsage
    forget_model: ForgetModel
    request_compaction: RequestCompaction
    jobs: ManageJobs
    #: Of the newest model rules.
    rules_date: str
