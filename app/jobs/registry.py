"""Which job is done by what."""

from collections.abc import Mapping

from app.jobs.worker import Handler
from app.services.compact_session import CompactSession
from app.services.compaction_jobs import COMPACT, COMPACT_ASKED


def handlers(compact_session: CompactSession) -> Mapping[str, Handler]:
    """Return the handler of every kind of job."""
    return {COMPACT: compact_session, COMPACT_ASKED: compact_session}
