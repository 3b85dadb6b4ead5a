"""A rehearsal: a site that was restored only to be looked at. It is read-only, and the original site goes on.

**Invariants.** Apart from the records of its own sessions, a rehearsal writes nothing to its journal, and it puts,
deletes and claims nothing on any backend. The database's `application_id` marks it as a rehearsal (`REHEARSAL_ID`), so
every copy of the folder is a rehearsal, too.

A rehearsal reads the blocks that the backup names. The original keeps these for as long as the backup says.
"""

from __future__ import annotations

from pathlib import Path

from gateway.config import Config
from gateway.journal.history.backup import REHEARSAL_ID
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.site.paths import journal_folder
from gateway.site.storage.keyring import JournalTables

READ_ONLY = (
    "this site is the rehearsal of a restore and read-only. The original site is not affected by it. "
    "`entrepot restore --take-over` makes a site of the backup that can be written"
)
"""Why a rehearsal refuses a change."""


def is_rehearsal(rows: JournalTables) -> bool:
    """Whether the site with these tables is a rehearsal."""
    return [tuple(row) for row in rows.query("PRAGMA application_id")] == [(REHEARSAL_ID,)]


def is_rehearsal_in(folder: Path, config: Config) -> bool:
    """Whether the site in *folder* is a rehearsal; False if it has no journal yet. Blocking."""
    database = JournalPaths(journal_folder(folder, config)).database
    if not database.exists():
        return False
    store = ReadStore(database, cache_kib=64)
    try:
        return is_rehearsal(store)
    finally:
        store.close()
