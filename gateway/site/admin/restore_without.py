"""Backends that a restored site does without, since they are gone for good: given up as lost, and what that costs.

The journal is given here as a file, since the site that it belongs to is only being made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.errors import Corrupted, Misconfigured
from gateway.journal.lock import hold_lock
from gateway.journal.paths import JournalPaths
from gateway.journal.server.inline_committer import InlineCommitter
from gateway.journal.site_clock import CommitterClock
from gateway.journal.sqlite.read_store import ReadStore
from gateway.journal.sqlite.store import SqliteStore
from gateway.reconcile.commands import COMMANDS, LoseBackend
from gateway.site.admin.lost_objects import Losses, given_up, lost_by_the_journal
from gateway.timing import Timing

if TYPE_CHECKING:
    from gateway.site.admin.restore import Restored

SPELLED = 20
"""Objects that cannot be read and are printed by name; JSON has more of them."""


def check_left_out(database: Path, names: Collection[str], configured: Collection[str]) -> frozenset[str]:
    """The backends that a site restored from the journal in *database* does without: *names*, and what its site had
    given up. *configured*: those of its config. Raises `Misconfigured` if the journal does not know one of *names*, or
    if none would be left; `Corrupted` if the journal cannot be read."""
    store = ReadStore(database)
    try:
        known = {name for (name,) in store.query("SELECT name FROM backend")}
        gone = given_up(store).union(names)
    except sqlite3.Error as error:
        raise Corrupted(f"{database} cannot be read: {error}") from error
    finally:
        store.close()
    for name in names:
        if name not in known:
            raise Misconfigured(f"the backup's journal knows no backend {name!r}: take it out of the backup's config")
    if names and gone.issuperset(configured):
        raise Misconfigured("every backend of the backup's config would be given up: nothing could be read or written")
    return gone


def give_up(paths: JournalPaths, names: Collection[str], timing: Timing) -> None:
    """Record that the backends *names*, which the journal knows, are lost."""
    if not names:
        return
    with hold_lock(paths):
        store = SqliteStore(paths.database)
        try:
            committer = InlineCommitter(store, COMMANDS, CommitterClock(store).now_ns, timing=timing)
            committer.run_all([LoseBackend(name) for name in names])
        finally:
            store.close()


def lost_in(database: Path) -> Losses | None:
    """What lies on backends that were given up and nowhere else, by the journal in the file *database*; None if none
    was given up. In a thread: walks every name."""
    store = ReadStore(database)
    try:
        return lost_by_the_journal(store, database) if given_up(store) else None
    finally:
        store.close()


def spell(restored: Restored, folder: Path) -> list[str]:
    """For people: what was left out, what cannot be read, and what to change in the config."""
    lost = restored.lost
    if lost is None:
        return []
    told = [f"{lost.backend} counts as lost for good: nobody asked for it, and nothing is put there any more"]
    told += [f"{name} cannot be read" for name in lost.objects[:SPELLED]]
    count = len(lost.objects) + lost.more
    if count > SPELLED:
        told.append(f"and {count - SPELLED} more, which `entrepot backend lost NAME --site {folder}` lists")
    told.append(
        f"{count} object(s) cannot be read: {lost.blocks} block(s), {lost.bytes} bytes lay there and nowhere else"
    )
    if lost.unchecked:
        told.append(
            f"{lost.unchecked} block(s) that lay there have other copies by the journal. Nobody has checked these yet:"
            f" `entrepot fsck {folder}` does. A served site makes what copies its policies ask for from them"
        )
    return [*told, *restored.remarks]
