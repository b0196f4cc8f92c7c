"""Names for the strings that must not be mixed up."""

from typing import NewType

TenantId = NewType("TenantId", str)
SessionId = NewType("SessionId", str)
EventId = NewType("EventId", str)
InvocationId = NewType("InvocationId", str)
AgentName = NewType("AgentName", str)
