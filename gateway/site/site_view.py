"""A site as it can be read without a session: its config, its tables and its keys. For commands that only read.

A session would leave two records in the journal, and a committer would have to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.config import Config
from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.schema import STEPS
from gateway.site.active_config import load_active
from gateway.site.ownership import require_owner
from gateway.site.paths import UNFINISHED, journal_folder, master_key
from gateway.site.rehearsal import is_rehearsal
from gateway.site.storage.keyring import Keyring
from gateway.site.storage.marker_guard import site_row
from gateway.timing import Timing, timing_from_environment


class SiteView:
    """Read-only access to a site: its config, tables and keys. Made by `open_view`, or as a `Site`."""

    def __init__(self, folder: Path, config: Config, store: ReadStore, keyring: Keyring, timing: Timing) -> None:
        self.folder = folder
        self.timing = timing
        self.config = config
        self.store = store
        self.keyring = keyring
        self.id, self.incarnation = site_row(store)
        self.is_rehearsal = is_rehearsal(store)
        """Whether the site is read-only (`rehearsal.py`)."""

    @property
    def journal_path(self) -> Path:
        """The journal's folder."""
        return journal_folder(self.folder, self.config)

    @property
    def has_current_schema(self) -> bool:
        """Whether the journal's tables have the schema of this version, whose statements read every table."""
        return [tuple(row) for row in self.store.query("PRAGMA user_version")] == [(len(STEPS),)]


def load_config_checked(folder: Path) -> Config:
    """Return the config in force of the site in *folder*. Raises `Misconfigured` if the site is not finished, or if
    this process may not open it."""
    config = load_active(folder)
    if (folder / UNFINISHED).exists():
        command = (folder / UNFINISHED).read_text().partition("\n")[0]
        raise Misconfigured(f"{folder} is not finished: `entrepot {command}` was interrupted; run it again")
    require_owner(folder, config)
    return config


@contextmanager
def open_view(folder: Path) -> Iterator[SiteView]:
    """Open the site in *folder* for reading. Raises `Misconfigured`, and `CommitterGone` if its journal cannot be
    read."""
    config, timing = load_config_checked(folder), timing_from_environment()
    store = ReadStore(JournalPaths(journal_folder(folder, config)).database, timing=timing)
    try:
        yield SiteView(folder, config, store, Keyring(master_key(folder, config), store), timing)
    finally:
        store.close()
