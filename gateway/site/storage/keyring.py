"""The key ring of a site as one process holds it: master keys from their file, ring keys and secrets from the journal.

The master key file is read again when something is wrapped under a key that was not in it: `entrepot keys rotate` has
added one meanwhile. Ring keys that were opened once are kept, since rewrapping does not change them.
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
    """What is needed of the store that is read."""

    def query(self, statement: str, values: Sequence[Any] = (), /) -> list[Any]: ...

    def data_version(self) -> int: ...


class Keyring:
    """Opens what is wrapped."""

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
        """The master key of that id, after another look at the file if need be. Raises `Misconfigured`."""
        try:
            return self._masters.by_id(master_id)
        except Misconfigured:
            self._masters = master.load(self._path)
            return self._masters.by_id(master_id)

    def add_master(self) -> MasterKey:
        """A new master key, durable in the file, under which everything is wrapped from now on."""
        self._masters = master.add(self._path)
        return self._masters.current

    def ring_key(self, ring_key_id: int) -> ActiveKey:
        """The ring key of that id. Raises `Corrupted` if there is none or it does not open."""
        found = self._opened.get(ring_key_id)
        if found is None:
            rows = self._rows.query(
                "SELECT t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant WHERE r.id = ?",
                (ring_key_id,),
            )
            if not rows:
                raise Corrupted(f"the journal has no ring key {ring_key_id:016x}")
            tenant, wrapped, master_id = rows[0]
            found = unwrap_ring_key(self.master(master_id), ring_key_id, tenant, wrapped)
            self._opened[ring_key_id] = found
        return found

    def sealing(self, ring_key_id: int) -> tuple[bytes, int]:
        """A ring key's bytes and the mode of its blocks."""
        found = self.ring_key(ring_key_id)
        return found.key, found.mode

    def active(self, tenant: int) -> ActiveKey:
        """The ring key that seals what the tenant (by id) writes now. Raises `Corrupted` if it has none."""
        version = self._rows.data_version()
        known = self._active.get(tenant)
        if known is not None and known[0] == version:
            return known[1]
        rows = self._rows.query("SELECT ring_key FROM tenant WHERE id = ?", (tenant,))
        if not rows or not rows[0][0]:
            raise Corrupted(f"tenant {tenant:016x} has no ring key")
        found = self.ring_key(rows[0][0])
        self._active[tenant] = (version, found)
        return found

    def unseal(self, access_key: str, sealed: bytes, master_id: str) -> str:
        """A user's secret. Raises `Corrupted` if it does not open, `Misconfigured` without its master key."""
        return open_secret(self.master(master_id), access_key, sealed)
