"""Names for the strings that must not be mixed up."""

from functools import lru_cache
from typing import Final, NewType
from uuid import UUID, uuid5

TenantId = NewType("TenantId", str)
SessionId = NewType("SessionId", str)
EventId = NewType("EventId", str)
InvocationId = NewType("InvocationId", str)
AgentName = NewType("AgentName", str)

#: Namespace of our session uids; changing it loses every session.
_NAMESPACE: Final = UUID("5b1f0a52-6f6c-5d6c-9e0b-0f01d11e5e55")


@lru_cache(maxsize=4096)
def session_uid(tenant_id: str, session_id: str) -> UUID:
    """Return the key of a session: computed, never looked up."""
    return uuid5(uuid5(_NAMESPACE, tenant_id), session_id)
