"""Restore a site from a backup: its journal, its config and its master key, in a folder of its own.

Theory of operation
-------------------
The restored site is the same site in a new incarnation. Only this command changes the new folder, under a lock on it
(`unfinished_site`). The folder passes through these states:

1. *Absent or empty.* Everything that can be checked without a backend is checked here: the manifest, the config, the
   names of backends, and that the master key opens everything that the backup's journal has wrapped. A failure leaves
   no trace.
2. *Marked as unfinished.* The mark identifies the backup (`compute_identity`). The config and the master key are
   written.
3. *With a journal.* It is a copy of the backup's, in an incarnation above the backup's and above every credible one in
   the backends' markers (`agreement`). Backends that are left out are recorded as lost.
4. *Claimed.* The backends have markers of the new incarnation. The original site ends when it next looks at its
   markers. All backends are checked before the first is claimed.
5. *A site.* The mark is deleted.

**Newer data.** The restored journal does not name what the original wrote after the backup. The restored site keeps it
for a grace period: `gc` deletes no block of a session that the journal does not know, the sweeper no unnamed block of a
session that was open in the backup, and nothing that dies is deleted. Until then a newer backup, also one that is made
of the original's folder now, can be restored with everything that it names.

**Invariants.** Nothing is written outside the folder except the backends' markers. A backup's config may name the
journal's folder or the master key by an absolute path, which is the original site's; the restored config names a place
inside the folder instead. A marked folder is never served.

**Crashes.** After a kill in any state, the same command finishes the restore; one with another backup is refused. The
config and the key are written atomically, and an existing key must be equal. No backend is claimed before the journal
exists. The journal gets its name in the last step of its own restore, and is then kept, with its incarnation. So a
backend that was claimed before the kill is claimed for the same incarnation again, which changes nothing.

**Without a backend.** A backend that no longer exists can be left out. The restored site has given it up, as after
`entrepot backend lost NAME --forget`: it is not asked, nothing is stored there, and its copies count as deleted. This
is recorded before any backend is claimed. The names of these backends are not part of the mark, so a restore that
failed because a backend could not be reached can be run again without it. A backend that was given up stays so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from backends import errors as backend_errors
from backends.base import Marker
from backends.local.marker import has_marker
from gateway import failpoints
from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.table_check import check_tables
from gateway.config import CONFIG_NAME, load
from gateway.errors import Misconfigured
from gateway.journal.history import backup as journal_backup
from gateway.journal.history.backup import Manifest
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.read_store import ReadStore
from gateway.placement.policy import remarks
from gateway.site.admin.backup_source import check_key, check_names, compute_identity, install_key, read_backup
from gateway.site.admin.claim_backend import claim_all
from gateway.site.admin.create_site import unfinished_site
from gateway.site.admin.lost_objects import Losses, lost_backends
from gateway.site.admin.newer_data import newer_kept_until_ns
from gateway.site.admin.restore_without import check_without, read_losses, record_as_lost
from gateway.site.paths import journal_folder, master_key
from gateway.site.storage.agreement import credible_incarnation
from gateway.site.storage.atomic_files import write_file
from gateway.site.storage.backend_factory import open_backend
from gateway.site.storage.marker_guard import site_row
from gateway.timing import Timing, timing_from_environment
from gateway.topology import BackendPlace, Topology


class RestoredSite(NamedTuple):
    site: str
    """The site's id."""
    incarnation: int
    until_ns: int
    """Until then the original site keeps the blocks that the backup names. Afterwards some may be missing."""
    moved: dict[str, str]
    """The settings of the backup's config that named a path outside the new folder, with that path."""
    unclaimed: dict[str, str]
    """The backends that were not claimed, and why. The restored site writes nothing there."""
    keeps_newer_until_ns: int | None = None
    """Until when it deletes nothing; None if it deletes as usual."""
    unverified: str = ""
    """If only the tables were restored: a sentence that says what could not be verified."""
    lost: Losses | None = None
    """What cannot be read, according to the journal, since only backends that were given up had it; None if no backend
    was given up."""
    remarks: tuple[str, ...] = ()
    """What should be changed in the restored config, since backends were given up."""


async def restore(
    target: Path,
    folder: Path,
    key_file: Path,
    *,
    anyway: Collection[str] = (),
    without: Collection[str] = (),
    keep_newer_seconds: float = 0.0,
    tables_only: bool = False,
) -> RestoredSite:
    """Restore the backup in *target* as a site in *folder*, with the master key in *key_file*. It takes over the
    backends.

    *keep_newer_seconds*: for how long the restored site deletes nothing that was written after the backup was made.
    *anyway*: backends that are claimed although they contain none of the blocks that they should. *without*: backends
    that no longer exist, which the restored site gives up. *tables_only*: for a backup whose journal is damaged; the
    tables are taken as they are, and a new chain of hashes begins. After an interruption the command can be run again.
    Raises `Misconfigured`, `Corrupted`, and `OSError` if *key_file* cannot be read."""
    backup = read_backup(target, folder)
    check_names(anyway, without, backup.topology)
    lost = check_without(backup.database, without, backup.topology.backends)
    key = key_file.read_bytes()
    check_key(key, key_file, backup.database)
    with unfinished_site(folder, "restore", compute_identity(backup, "take over", tables_only, keep_newer_seconds)):
        write_file(folder / CONFIG_NAME, backup.config)
        config = load(folder)
        install_key(key, key_file, master_key(folder, config))
        paths, timing = JournalPaths(journal_folder(folder, config)), timing_from_environment()
        if not paths.database.exists():
            with _suggesting_without():
                above = await _find_greatest_incarnation(backup.topology, lost, backup.manifest, timing)
            journal_backup.restore(
                target, paths.folder, above=above, keep_newer_seconds=keep_newer_seconds, tables_only=tables_only
            )
        record_as_lost(paths, frozenset(without), timing)
        unverified = (
            await asyncio.to_thread(_describe_unverified, paths.database, backup.manifest) if tables_only else ""
        )
        store = ReadStore(paths.database)
        try:
            failpoints.reach("restore-made")
            with _suggesting_without():
                unclaimed = await claim_all(backup.topology, store, timing, anyway=anyway)
            site, incarnation = site_row(store)
            return RestoredSite(
                site,
                incarnation,
                backup.manifest.until_ns,
                backup.moved,
                unclaimed,
                newer_kept_until_ns(store, timing.clock),
                unverified,
                lost=await asyncio.to_thread(read_losses, paths.database),
                remarks=tuple(remarks(backup.topology, lost_backends(store))),
            )
        finally:
            store.close()


@contextmanager
def _suggesting_without() -> Iterator[None]:
    """Add to the error of a backend that cannot be used that it can be left out."""
    try:
        yield
    except Misconfigured as error:
        cause = error.__cause__
        if isinstance(cause, backend_errors.BackendError) and not isinstance(cause, backend_errors.OwnedByAnotherSite):
            hint = f". If that backend is gone for good, leave it out: --without {cause.backend}"
            raise Misconfigured(f"{error}{hint}") from cause
        raise


def _describe_unverified(database: Path, manifest: Manifest) -> str:
    """Return what is not known of tables that were restored without their records. Called in a thread."""
    report = FsckReport()
    check_tables(database, report, lambda done, total: None)
    count = report.kinds.total()
    result = f"The tables contradict each other {count} time(s)" if count else "The tables do not contradict each other"
    return (
        f"NOT verified: whether the tables match the {manifest.number} records of the backup's journal. {result}. "
        "The records were dropped, and a new chain of hashes begins"
    )


async def _find_greatest_incarnation(
    topology: Topology, lost: Collection[str], manifest: Manifest, timing: Timing
) -> int:
    """Return the greatest credible incarnation of the backup's site in a backend's marker (`agreement`); 0 if there is
    none. Backends in *lost* are not asked. Raises `Misconfigured` if a marker belongs to another site, or cannot be
    read."""
    incarnations = dict[str, int]()
    for place in topology.backends.values():
        if place.name in lost:
            continue
        if place.s3 is None and not has_marker(place.path):
            continue  # `claim_all` creates the folder, if no block should be there
        marker = await _read_marker(place, timing)
        if marker is None:
            continue
        if marker.site != manifest.site:
            raise Misconfigured(
                f"backend {place.name!r}: it belongs to site {marker.site}, and the backup is of site {manifest.site}"
            )
        incarnations[place.name] = marker.incarnation
    return credible_incarnation(topology.backends, incarnations, manifest.incarnation)


async def _read_marker(place: BackendPlace, timing: Timing) -> Marker | None:
    """Return the marker of *place*. None if it has none, or if it is a bucket that may be missing, since its config
    permits to create it. Raises `Misconfigured` if the backend cannot be used."""
    try:
        backend = await open_backend(place, writes_much=False, make=False, timing=timing, read_only=True)
    except backend_errors.Misconfigured as error:
        if place.s3 is not None and place.s3.create_bucket:
            return None
        raise Misconfigured(str(error)) from error
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error
    try:
        return await backend.marker()
    except backend_errors.BackendError as error:
        raise Misconfigured(str(error)) from error
    finally:
        await backend.close()
