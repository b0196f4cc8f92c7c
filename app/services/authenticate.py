"""Who is asking: a bearer key to a tenant and its scopes."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Final

from app.core.errors import InvalidInputError, UnauthenticatedError
from app.ports import ApiKeys, Database, Principal

DEFAULT_TENANT: Final = "default"
SCOPES: Final = ("events:write", "events:read", "compile", "admin", "metrics")
KEY_PREFIX: Final = "fl_"
#: Bytes of randomness in a key.
KEY_BYTES: Final = 32
#: A key that was found is believed for so long: every request would ask the database otherwise.
CACHE_S: Final = 10.0
MAX_CACHED: Final = 10_000


class Authenticate:
    """Tells who a key stands for."""

    def __init__(
        self, *, database: Database, keys: ApiKeys, is_on: bool, admin_key: str | None
    ) -> None:
        self._database = database
        self._keys = keys
        self._is_on = is_on
        self._admin_hash = hash_key(admin_key) if admin_key else None
        self._known: dict[bytes, tuple[float, Principal]] = {}

    async def __call__(self, key: str | None) -> Principal:
        """Return whom the key stands for; without authentication, the default tenant.

        Raises:
            UnauthenticatedError: a key is needed and none, or an unknown one, was given.
        """
        if not self._is_on:
            return _every_scope("none")
        if not key:
            raise UnauthenticatedError
        key_hash = hash_key(key)
        if self._admin_hash is not None and hmac.compare_digest(key_hash, self._admin_hash):
            return _every_scope("admin")
        cached = self._known.get(key_hash)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        return await self._found(key_hash)

    async def _found(self, key_hash: bytes) -> Principal:
        async with self._database.connection() as connection:
            principal = await self._keys.find(connection, key_hash)
        if principal is None:
            self._known.pop(key_hash, None)
            raise UnauthenticatedError
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[key_hash] = (time.monotonic() + CACHE_S, principal)
        return principal


class CreateKey:
    """Makes keys; a key is shown once and kept nowhere."""

    def __init__(self, *, database: Database, keys: ApiKeys) -> None:
        self._database = database
        self._keys = keys

    async def __call__(self, *, tenant_id: str, name: str, scopes: Sequence[str]) -> str:
        """Return a new key of a tenant, which is made if it is new.

        Raises:
            InvalidInputError: a scope is unknown.
        """
        for scope in scopes:
            if scope not in SCOPES:
                raise InvalidInputError(
                    f"unknown scope {scope!r}; known are {', '.join(SCOPES)}", pointer="/scopes"
                )
        key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
        async with self._database.transaction() as connection:
            await self._keys.create(
                connection,
                tenant_id=tenant_id,
                name=name,
                key_hash=hash_key(key),
                scopes=list(scopes),
            )
        return key


def hash_key(key: str) -> bytes:
    """Return the hash that is kept of a key: keys are random, so a plain hash is enough."""
    return hashlib.sha256(key.encode(errors="replace")).digest()


def _every_scope(key_id: str) -> Principal:
    return Principal(tenant_id=DEFAULT_TENANT, key_id=key_id, scopes=frozenset(SCOPES))
