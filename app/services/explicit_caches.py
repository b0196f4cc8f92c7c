"""Say what is to be done about a session's explicit cache, when a compile asks for one."""

from collections.abc import Sequence

from app.core.compile.explicit_cache import (
    CacheRecord,
    Lifecycle,
    newest_records,
    plan_cache,
    terms_of,
    used_record,
)
from app.core.compile.inputs import CompileInput, CompileOptions, CompileResult
from app.core.compile.projection import Counted
from app.core.copying import replace
from app.core.events import Event
from app.ports import Clock, Connection, EventLog, SessionKey
from app.services.compile_given import Given


class ExplicitCaches:
    """Finds what the log knows of a cache; the only thing besides is whether its time is over."""

    def __init__(self, *, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def find(
        self, connection: Connection, key: SessionKey, options: CompileOptions, *, up_to_seq: int
    ) -> Sequence[CacheRecord]:
        """Return the newest records, newest first; none when no cache is asked for."""
        if options.cache.explicit is None:
            return ()
        return await self._log.cache_records(connection, key, options.reader, up_to_seq)

    def find_among(self, events: Sequence[Event], options: CompileOptions) -> Sequence[CacheRecord]:
        """Return the newest records of a log that is stored nowhere."""
        return () if options.cache.explicit is None else newest_records(events, options.reader)

    def dated(self, given: Given, records: Sequence[CacheRecord]) -> Given:
        """Return the inputs with what the clock says of a cache, unless they say it already."""
        if not records or not records[0].metadata.is_active or given.is_cache_expired is not None:
            return given
        expire_time = records[0].metadata.expire_time
        is_expired = expire_time is None or self._clock.now().timestamp() >= expire_time
        return replace(given, is_cache_expired=is_expired)

    def plan(
        self,
        inputs: CompileInput,
        result: CompileResult,
        counted: Counted,
        events: Sequence[Event],
        *,
        records: Sequence[CacheRecord],
        given: Given,
    ) -> Lifecycle | None:
        """Return what is to be done, None when no cache is asked for.

        Raises:
            InvalidInputError: the model has no such caches, or it is not known for how long.
        """
        wanted = inputs.options.cache.explicit
        if wanted is None:
            return None
        terms = terms_of(wanted, inputs.rule)
        record = used_record(records, events, inputs.index, inputs.options.reader)
        is_expired = bool(given.is_cache_expired)
        return plan_cache(result, counted, terms, record=record, is_expired=is_expired)
