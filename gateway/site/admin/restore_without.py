"""Restore a site without backends that no longer exist: give them up as lost, and list what was only there.

The site does not exist yet, so these functions work on the file of its journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path

from gateway.errors import Corrupted, Misconfigured
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.site_clock import CommitterClock
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.reconcile.commands import COMMANDS, LoseBackend
from gateway.site.admin.lost_objects import Losses, losses_by_journal, lost_backends
from gateway.timing import Timing


def check_without(database: Path, without: Collection[str], configured: Collection[str]) -> frozenset[str]:
    """Check that a site can be restored without the backends *without*. Return the names of all backends that it gives
    up: these, and those that the backed-up site had given up.

    *database*: the file of the backup's journal. *configured*: the backends of the backup's config. Raises
    `Misconfigured` if the journal does not know one of *without*, or if no backend would be left; `Corrupted` if the
    journal cannot be read."""
    store = ReadStore(database)
    try:
        known = {name for (name,) in store.query("SELECT name FROM backend")}
        lost = lost_backends(store).union(without)
    except sqlite3.Error as error:
        raise Corrupted(f"{database} cannot be read: {error}") from error
    finally:
        store.close()
    for name in without:
        if name not in known:
            raise Misconfigured(f"the backup's journal knows no backend {name!r}: remove it from the backup's config")
    if without and lost.issuperset(configured):
        raise Misconfigured("every backend of the backup's config would be given up: nothing could be read or written")
    return lost


def record_as_lost(paths: JournalPaths, names: Collection[str], timing: Timing) -> None:
    """Record in the journal that the backends *names*, which it knows, are lost. May be repeated."""
    if not names:
        return
    with hold_lock(paths):
        store = SqliteStore(paths.database)
        try:
            committer = InlineCommitter(store, COMMANDS, CommitterClock(store).now_ns, timing=timing)
            committer.run_all([LoseBackend(name) for name in names])
        finally:
            store.close()


def read_losses(database: Path) -> Losses | None:
    """Return what the backends that were given up alone have, according to the journal in the file *database*; None if
    none was given up. Called in a thread, since it reads every name."""
    store = ReadStore(database)
    try:
        return losses_by_journal(store, database) if lost_backends(store) else None
    finally:
        store.close()
