"""Use staged folds from the moment when it costs nothing: once the provider's cache is cold.

A fold changes the beginning of every later request, so the first one after it is read at full
price. After a pause longer than the cache lives, that request is read at full price anyway: then a
staged fold is activated, by an event at the end of the append that ends the pause.
"""

from collections.abc import Sequence
from typing import Final

from app.core.canonical import canonical_json
from app.core.events import USER, ActivationRequest
from app.core.json_text import RawItem
from app.formats.adk import marker_body
from app.ports import CacheUses, Clock, Connection, LockedSession, SessionKey
from app.services.prepare_events import EventPreparer, PreparedEvent, SentBatch, uuid7

#: How long a cache lives where no rule of a model says it: the shortest of any provider's (see
#: `app/formats/rules`). Too short costs what an immediate fold costs, once; too long lets every
#: request after a pause be read at full price in full length.
DEFAULT_TTL_S: Final = 300


class ActivateStaged:
    """Decides at an append whether the cache is cold."""

    def __init__(
        self,
        *,
        cache_uses: CacheUses,
        preparer: EventPreparer,
        clock: Clock,
        default_ttl_s: float = DEFAULT_TTL_S,
    ) -> None:
        self._cache_uses = cache_uses
        self._preparer = preparer
        self._clock = clock
        self._default_ttl_s = default_ttl_s

    async def __call__(
        self,
        connection: Connection,
        key: SessionKey,
        session: LockedSession,
        fresh: Sequence[PreparedEvent],
    ) -> list[PreparedEvent]:
        """Return the activations that are to follow these events; most often none.

        Args:
            connection: of the append's transaction, session locked.
            key: the session's.
            session: as it was before the append.
            fresh: what is appended.
        """
        if not session.index.staged or not _ends_a_pause(fresh):
            return []
        if not await self._is_cold(connection, key):
            return []
        items = [self._activation(seq) for seq in session.index.staged]
        batch = SentBatch(items=items, allow_markers=True)
        return (await self._preparer.prepare(batch, now=self._clock.now()))[0]

    async def _is_cold(self, connection: Connection, key: SessionKey) -> bool:
        use = await self._cache_uses.last(connection, key)
        return use is None or use.idle_s > (use.ttl_s or self._default_ttl_s)

    def _activation(self, seq: int) -> RawItem:
        event_id = str(uuid7(self._clock.now()))
        body = marker_body(ActivationRequest(seq), id=event_id, author=USER, invocation_id="")
        return RawItem(body, canonical_json(body))


def _ends_a_pause(fresh: Sequence[PreparedEvent]) -> bool:
    """Tell whether something came that a model will be asked about, and nothing of a model's.

    A reply that took long was read from a cache all the same, when it began.
    """
    ordinary = [each.event for each in fresh if each.event.request is None]
    return bool(ordinary) and not any(event.is_model for event in ordinary)
