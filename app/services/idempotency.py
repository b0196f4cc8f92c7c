"""Idempotency keys: a request that was answered once is not carried out again.

The key is claimed and its answer kept in the transaction that does the work, so that there is never
work without its answer, nor an answer without its work.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from app.core.errors import IdempotencyMismatchError
from app.ports import Connection, IdempotencyKeys, KeptAnswer, SessionKey

CREATED: Final = 201


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """A request that carries an idempotency key."""

    tenant_id: str
    #: Method and path: one key may be used for two different requests.
    route: str
    idempotency_key: str
    request_hash: bytes


async def claim(
    keys: IdempotencyKeys, connection: Connection, request: IdempotentRequest | None
) -> dict[str, Any] | None:
    """Take the key for this transaction, or return what was kept under it.

    Raises:
        IdempotencyMismatchError: the key was used with another body.
        IdempotencyInProgressError: the first request is still running.
    """
    if request is None:
        return None
    kept = await keys.claim(connection, request.tenant_id, request.route, request.idempotency_key)
    if kept is None:
        return None
    if kept.request_hash != request.request_hash:
        raise IdempotencyMismatchError
    answer: dict[str, Any] = json.loads(kept.body)
    return answer


async def keep(
    keys: IdempotencyKeys,
    connection: Connection,
    request: IdempotentRequest | None,
    answer: dict[str, Any],
    *,
    key: SessionKey | None,
) -> None:
    """Keep the facts of an answer; the answer itself is made from them again."""
    if request is not None:
        await keys.keep(
            connection,
            request.tenant_id,
            request.route,
            request.idempotency_key,
            KeptAnswer(request.request_hash, CREATED, json.dumps(answer)),
            key=key,
        )
