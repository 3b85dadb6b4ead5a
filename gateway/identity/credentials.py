"""Look up the secret and the user of an access key: synchronous point queries with a cache.

The cache never outlives the data: each look-up reads the store's catalog version (this takes no query), and once that
has changed, the row is read again. Only unsealing a secret, which is slow, is skipped while the row is unchanged. So a
removed key is refused from the next request on. The size of the cache is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

CACHE_ENTRIES_MOST = 4_096

_SELECT = (
    "SELECT k.secret, k.master, u.name, u.id, u.tenant, u.root, u.disabled, k.expires_ns"
    " FROM access_key k JOIN user u ON u.name = k.user"
    " WHERE k.access_key = ?"
)


class QueryStore(Protocol):
    """The part of a store that look-ups need. Other processes write to it."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]: ...

    def catalog_version(self) -> int:
        """Return a number that changes with every commit that changes users or access keys."""
        ...


class Credential(NamedTuple):
    """The secret of an access key, and the user it belongs to."""

    secret: str
    user: str
    user_id: int
    tenant: int
    root: bool
    disabled: bool = False
    """Whether the user is disabled."""
    expires_ns: int = 0
    """From this time on the key is not accepted, by the wall clock; 0: it does not expire."""

    def is_accepted(self, now_ns: int) -> bool:
        """Whether requests may be signed with the key at *now_ns*, by the wall clock."""
        return not self.disabled and (not self.expires_ns or now_ns < self.expires_ns)

    def __repr__(self) -> str:
        return f"Credential({self.user!r})"


class _CachedCredential(NamedTuple):
    version: int
    row: tuple[Any, ...]
    credential: Credential


class CredentialCache:
    """The credentials of a site. *unseal* returns a secret, given the access key, the sealed secret and the id of the
    master key; it raises if it cannot."""

    def __init__(self, store: QueryStore, unseal: Callable[[str, bytes, str], str]) -> None:
        self._store = store
        self._unseal = unseal
        self._cache: dict[str, _CachedCredential] = {}
        self.opened = 0
        """How many secrets were unsealed, for tests."""

    def find(self, access_key: str) -> Credential | None:
        """Return the current credential of an access key, or None if there is no such key."""
        version = self._store.catalog_version()
        cached = self._cache.get(access_key)
        if cached is not None and cached.version == version:
            return cached.credential
        rows = self._store.query(_SELECT, (access_key,))
        if not rows:
            self._cache.pop(access_key, None)
            return None
        row = rows[0]
        credential = (
            cached.credential if cached is not None and cached.row == row else self._unseal_row(access_key, row)
        )
        if len(self._cache) >= CACHE_ENTRIES_MOST:
            self._cache.clear()
        self._cache[access_key] = _CachedCredential(version, row, credential)
        return credential

    def _unseal_row(self, access_key: str, row: tuple[Any, ...]) -> Credential:
        secret, master, user, user_id, tenant, root, disabled, expires_ns = row
        self.opened += 1
        opened = self._unseal(access_key, secret, master)
        return Credential(opened, user, user_id, tenant, bool(root), bool(disabled), expires_ns)
