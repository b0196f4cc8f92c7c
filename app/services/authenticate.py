"""Who is asking: a bearer key to a tenant and its scopes."""

import hashlib
import hmac
import time
from typing import Final

from app.core.errors import TenantDisabledError, UnauthenticatedError
from app.ports import ApiKeys, Database, Principal

DEFAULT_TENANT: Final = "default"
#: ``admin`` is for what belongs to the key's own tenant, ``operator`` for every tenant.
SCOPES: Final = ("events:write", "events:read", "compile", "admin", "metrics", "operator")
#: Id of the key of the settings.
ADMIN: Final = "admin"
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
            TenantDisabledError: the key's tenant is disabled.
        """
        if not self._is_on:
            return _every_scope("none")
        if not key:
            raise UnauthenticatedError
        key_hash = hash_key(key)
        if self._admin_hash is not None and hmac.compare_digest(key_hash, self._admin_hash):
            return _every_scope(ADMIN)
        cached = self._known.get(key_hash)
        found = (
            cached[1]
            if cached is not None and cached[0] > time.monotonic()
            else await self._found(key_hash)
        )
        if found.is_tenant_disabled:
            raise TenantDisabledError
        return found

    def forget(self) -> None:
        """Ask the database again for every key: one of them was changed."""
        self._known.clear()

    async def _found(self, key_hash: bytes) -> Principal:
        async with self._database.connection() as connection:
            principal = await self._keys.find(connection, key_hash)
        if principal is None:
            self._known.pop(key_hash, None)
            raise UnauthenticatedError
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        known_s = CACHE_S if principal.valid_s is None else min(CACHE_S, principal.valid_s)
        self._known[key_hash] = (time.monotonic() + known_s, principal)
        return principal


def hash_key(key: str) -> bytes:
    """Return the hash that is kept of a key: keys are random, so a plain hash is enough."""
    return hashlib.sha256(key.encode(errors="replace")).digest()


def _every_scope(key_id: str) -> Principal:
    return Principal(tenant_id=DEFAULT_TENANT, key_id=key_id, scopes=frozenset(SCOPES))
