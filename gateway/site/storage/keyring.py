"""The key ring of a site in one process: master keys from their file, ring keys and secrets from the journal.

The master key file is read again if something is wrapped under a key that it did not have: `entrepot keys rotate` has
added one meanwhile. Unwrapped ring keys are cached for good, since rewrapping does not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from gateway.crypto import master
from gateway.crypto.master import MasterKey, MasterKeys
from gateway.crypto.ring import ActiveKey, open_secret, unwrap_ring_key
from gateway.crypto.sealing import ENCRYPTED, TAGGED
from gateway.errors import Corrupted, Misconfigured

MODES = {"aes-256-gcm": ENCRYPTED, "tagged": TAGGED}
"""The config's words for how blocks are sealed."""
MODE_WORDS = {mode: word for word, mode in MODES.items()}


class JournalTables(Protocol):
    """Read access to the journal's tables."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]: ...

    def catalog_version(self) -> int: ...


class Keyring:
    """Unwraps ring keys and secrets, and adds master keys."""

    def __init__(self, master_path: Path, rows: JournalTables) -> None:
        """Raises `Misconfigured` if the master key file cannot be used."""
        self._path = master_path
        self._rows = rows
        self._masters = master.load(master_path)
        self._opened: dict[int, ActiveKey] = {}
        self._active: dict[int, tuple[int, ActiveKey]] = {}

    @property
    def masters(self) -> MasterKeys:
        return self._masters

    def master(self, master_id: str) -> MasterKey:
        """Return the master key of that id, and read the file again if it is not known yet. Raises `Misconfigured`."""
        try:
            return self._masters.by_id(master_id)
        except Misconfigured:
            self._masters = master.load(self._path)
            return self._masters.by_id(master_id)

    def add_master(self) -> MasterKey:
        """Add a new master key to the file, durably, and return it. Everything is wrapped under it from now on."""
        self._masters = master.add(self._path)
        return self._masters.current

    def ring_key(self, ring_key_id: int) -> ActiveKey:
        """Return the ring key of that id. Raises `Corrupted` if there is none or it does not unwrap."""
        key = self._opened.get(ring_key_id)
        if key is None:
            rows = self._rows.query(
                "SELECT t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant WHERE r.id = ?",
                (ring_key_id,),
            )
            if not rows:
                raise Corrupted(f"the journal has no ring key {ring_key_id:016x}")
            tenant, wrapped, master_id = rows[0]
            key = unwrap_ring_key(self.master(master_id), ring_key_id, tenant, wrapped)
            self._opened[ring_key_id] = key
        return key

    def sealing(self, ring_key_id: int) -> tuple[bytes, int]:
        """Return the bytes of a ring key and the sealing mode of its blocks."""
        key = self.ring_key(ring_key_id)
        return key.key, key.mode

    def active(self, tenant: int) -> ActiveKey:
        """Return the ring key that seals what *tenant* (an id) writes now. Raises `Corrupted` if it has none."""
        version = self._rows.catalog_version()
        known = self._active.get(tenant)
        if known is not None and known[0] == version:
            return known[1]
        rows = self._rows.query("SELECT ring_key FROM tenant WHERE id = ?", (tenant,))
        if not rows or not rows[0][0]:
            raise Corrupted(f"tenant {tenant:016x} has no ring key")
        key = self.ring_key(rows[0][0])
        self._active[tenant] = (version, key)
        return key

    def unseal(self, access_key: str, sealed: bytes, master_id: str) -> str:
        """Return a user's secret. Raises `Corrupted` if it does not open, and `Misconfigured` if its master key is
        missing."""
        return open_secret(self.master(master_id), access_key, sealed)
