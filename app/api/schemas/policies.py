"""Policies on the wire. What is valid in one is the core's to say (``core/policy.py``)."""

from typing import Any

from app.api.schemas.fields import AnswerModel, RequestModel, cleaned
from app.core.canonical import Json


class PolicyRequest(RequestModel):
    """A policy; each group is checked as a whole."""

    compaction: Any = None
    """When to fold, and what: `strategy` and the keys that it uses."""
    summarizer: Any = None
    """What writes summaries: `kind` and its terms."""
    offload: Any = None
    """Does not exist yet: only null is taken. Large results are stored and compiled whole."""
    pins: Any = None
    """How many tokens pins may take: `max_tokens`."""

    def to_domain(self) -> dict[str, Json]:
        """Return the groups that were named."""
        value = cleaned({name: getattr(self, name) for name in self.model_fields_set})
        assert isinstance(value, dict)
        return {name: value[name] for name in type(self).model_fields if name in value}


class PolicyAnswer(AnswerModel):
    """A policy."""

    compaction: dict[str, Any] | None = None
    """When to fold, and what."""
    summarizer: dict[str, Any] | None = None
    """What writes summaries."""
    offload: dict[str, Any] | None = None
    """Without effect; only policies of before it was refused have it."""
    pins: dict[str, Any] | None = None
    """How many tokens pins may take."""
