"""`foldline verify`: re-check every stored session; exit 1 and name what is wrong.

One line for each finding: tenant, session, seq if there is one, kind, and what is wrong. Nothing is
changed.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass

from pydantic import SecretStr

from app.cli.database import DEFAULT_TENANT, check_tenant, keep_quiet, running_database
from app.core.errors import SessionNotFoundError
from app.core.ids import session_uid
from app.ports import SessionKey
from app.services.bundle import Services
from app.services.verify_sessions import SessionReport
from app.settings import Settings, load_settings
from app.wiring import build_parts

#: A scan for what belongs to no session reads the whole log.
STATEMENT_TIMEOUT_S = 3600.0


@dataclass(slots=True)
class _Sums:
    sessions: int = 0
    events: int = 0
    findings: int = 0
    proved: int = 0
    not_proved: int = 0
    skipped: int = 0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what limits the check."""
    parser.add_argument("--tenant", help="only sessions of this tenant")
    parser.add_argument("--session", help="only this session; of the tenant, else of `default`")
    parser.add_argument(
        "--no-chain", action="store_true", help="do not compile again what replies answered"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, and return 1 if anything is wrong."""
    settings = load_settings()
    keep_quiet(settings)
    with running_database(settings) as url:
        settings = settings.model_copy(update={"database_url": SecretStr(url)})
        sums = asyncio.run(_verify(settings, arguments))
    print(
        f"{sums.sessions} sessions, {sums.events} events: {sums.findings} findings; "
        f"fingerprints proved {sums.proved}, not known {sums.not_proved}, "
        f"not looked at {sums.skipped}"
    )
    return 1 if sums.findings else 0


async def _verify(settings: Settings, arguments: argparse.Namespace) -> _Sums:
    sums = _Sums()
    parts = build_parts(
        settings,
        application_name="foldline-verify",
        statement_timeout_s=STATEMENT_TIMEOUT_S,
        only_reads=True,
    )
    async with parts as built:
        verify = built.services.verify_sessions
        if arguments.session is not None:
            _tell(await _one(built.services, arguments), sums)
            return sums
        reports = verify.all(tenant_id=arguments.tenant, with_chain=not arguments.no_chain)
        async for report in reports:
            _tell(report, sums)
        if arguments.tenant is not None and not sums.sessions:
            # Of a misspelt tenant nothing is wrong either.
            await check_tenant(built.services, arguments.tenant)
        if arguments.tenant is None:
            for finding in await verify.strays():
                sums.findings += 1
                print(f"{finding.kind}: {finding.detail}", file=sys.stderr)
    return sums


async def _one(services: Services, arguments: argparse.Namespace) -> SessionReport:
    tenant_id = arguments.tenant or DEFAULT_TENANT
    key = SessionKey(tenant_id, arguments.session, session_uid(tenant_id, arguments.session))
    try:
        return await services.verify_sessions(key, with_chain=not arguments.no_chain)
    except SessionNotFoundError:
        raise SessionNotFoundError(
            f"tenant {tenant_id} has no session {arguments.session}"
        ) from None


def _tell(report: SessionReport, sums: _Sums) -> None:
    sums.sessions += 1
    sums.events += report.events
    sums.proved += report.replies_proved
    sums.not_proved += report.replies_not_proved
    sums.skipped += report.replies_skipped
    for finding in report.findings:
        sums.findings += 1
        place = f"{report.key.tenant_id}/{report.key.session_id}"
        seq = "" if finding.seq is None else f" seq {finding.seq}"
        print(f"{place}{seq}: {finding.kind}: {finding.detail}", file=sys.stderr)
