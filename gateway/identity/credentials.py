"""From an access key to who asks and with which secret. Synchronous point look-ups, remembered while nothing changed.

Nothing is trusted longer than the store says: every look-up asks for the store's data version (microseconds), and
when that moved, the rows are read again; only the opening of a secret, which is slow, is spared while its row is the
same. So a key that was removed is refused with the next request. What is remembered is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

CACHE_ENTRIES_MOST = 4_096

_FIND = (
    "SELECT k.secret, k.master, u.name, u.id, u.tenant, u.root FROM access_key k JOIN user u ON u.name = k.user"
    " WHERE k.access_key = ?"
)


class QueryStore(Protocol):
    """What is needed of a store that others write to."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]: ...

    def data_version(self) -> int:
        """Another number once anything was committed."""
        ...


class Credential(NamedTuple):
    """An access key's secret, and its user."""

    secret: str
    user: str
    user_id: int
    tenant: int
    root: bool

    def __repr__(self) -> str:
        return f"Credential({self.user!r})"


class _CachedCredential(NamedTuple):
    version: int
    row: tuple[Any, ...]
    credential: Credential


class CredentialCache:
    """*unseal* opens a secret: from access key, sealed secret and master key's id. It raises if it cannot."""

    def __init__(self, store: QueryStore, unseal: Callable[[str, bytes, str], str]) -> None:
        self._store = store
        self._unseal = unseal
        self._known: dict[str, _CachedCredential] = {}
        self.opened = 0
        """Secrets so far; every other look-up spared that."""

    def find(self, access_key: str) -> Credential | None:
        """The credential as of now, None if there is no such key."""
        version = self._store.data_version()
        known = self._known.get(access_key)
        if known is not None and known.version == version:
            return known.credential
        rows = self._store.query(_FIND, (access_key,))
        if not rows:
            self._known.pop(access_key, None)
            return None
        row = rows[0]
        credential = known.credential if known is not None and known.row == row else self._open(access_key, row)
        if len(self._known) >= CACHE_ENTRIES_MOST:
            self._known.clear()
        self._known[access_key] = _CachedCredential(version, row, credential)
        return credential

    def _open(self, access_key: str, row: tuple[Any, ...]) -> Credential:
        secret, master, user, user_id, tenant, root = row
        self.opened += 1
        return Credential(self._unseal(access_key, secret, master), user, user_id, tenant, bool(root))
