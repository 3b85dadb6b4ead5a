"""Restore a site from a backup: its journal, its config and its master key, in a folder of its own.

Theory of operation
-------------------
The restored site is the same site in a new incarnation. Only this command changes the new folder, under a lock on it
(`unfinished_site`). The folder passes through these states:

1. *Absent or empty.* Everything that can be checked without a backend is checked here: the manifest, the config, the
   names of backends, and that the master key opens everything that the backup's journal has wrapped. A failure leaves
   no trace.
2. *Marked as unfinished.* The mark identifies the backup (`_compute_identity`). The config and the master key are
   written.
3. *With a journal.* It is a copy of the backup's, in an incarnation above the backup's and above every credible one in
   the backends' markers (`agreement`). Backends that are left out are recorded as lost.
4. *Claimed.* The backends have markers of the new incarnation. The original site ends when it next looks at its
   markers. All backends are checked before the first is claimed.
5. *A site.* The mark is deleted.

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
import hashlib
import json
import os.path
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import tomli_w

from backends import errors as backend_errors
from backends.base import Marker
from gateway import failpoints
from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.table_check import check_tables
from gateway.config import CONFIG_NAME, load, load_text
from gateway.config.loading import read, tables_of
from gateway.crypto import master
from gateway.crypto.master import MasterKeys
from gateway.crypto.ring import open_secret, unwrap_ring_key
from gateway.errors import Corrupted, Misconfigured
from gateway.journal.history import backup as journal_backup
from gateway.journal.history.backup import Manifest
from gateway.journal.paths import JournalPaths, make_folder
from gateway.journal.sqlite.read_store import ReadStore
from gateway.placement.policy import remarks
from gateway.site.admin.claim_backend import claim_all
from gateway.site.admin.create_site import unfinished_site
from gateway.site.admin.lost_objects import Losses, lost_backends
from gateway.site.admin.restore_without import check_without, read_losses, record_as_lost
from gateway.site.paths import journal_folder, master_key
from gateway.site.storage.agreement import credible_incarnation
from gateway.site.storage.atomic_files import write_file
from gateway.site.storage.backend_factory import open_backend
from gateway.site.storage.marker_guard import site_row
from gateway.timing import Timing, timing_from_environment
from gateway.topology import BackendPlace, Topology

_OWN_PATHS = (("journal", "path", "journal"), ("sealing", "master_key", "master.key"))
"""The settings (section and name) that name files of this site alone, and the path that replaces one outside."""


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
    unverified: str = ""
    """If only the tables were restored: a sentence that says what could not be verified."""
    lost: Losses | None = None
    """What cannot be read, according to the journal, since only backends that were given up had it; None if no backend
    was given up."""
    remarks: tuple[str, ...] = ()
    """What should be changed in the restored config, since backends were given up."""


class _Backup(NamedTuple):
    manifest: Manifest
    database: Path
    config: str
    """The text of the config for the restored site."""
    moved: dict[str, str]
    """See `RestoredSite`."""
    topology: Topology


async def restore(
    target: Path,
    folder: Path,
    key_file: Path,
    *,
    anyway: Collection[str] = (),
    without: Collection[str] = (),
    tables_only: bool = False,
) -> RestoredSite:
    """Restore the backup in *target* as a site in *folder*, with the master key in *key_file*.

    *anyway*: backends that are claimed although they contain none of the blocks that they should. *without*: backends
    that no longer exist, which the restored site gives up. *tables_only*: for a backup whose journal is damaged; the
    tables are taken as they are, and a new chain of hashes begins. After an interruption the command can be run again.
    Raises `Misconfigured`, `Corrupted`, and `OSError` if *key_file* cannot be read."""
    backup = _read_backup(target, folder)
    _check_names(anyway, without, backup.topology)
    lost = check_without(backup.database, without, backup.topology.backends)
    key = key_file.read_bytes()
    _check_key(master.parse(key, key_file), backup.database)
    with unfinished_site(folder, "restore", _compute_identity(backup, tables_only)):
        write_file(folder / CONFIG_NAME, backup.config)
        config = load(folder)
        _install_key(key, key_file, master_key(folder, config))
        paths, timing = JournalPaths(journal_folder(folder, config)), timing_from_environment()
        if not paths.database.exists():
            with _suggesting_without():
                above = await _find_greatest_incarnation(backup.topology, lost, backup.manifest, timing)
            journal_backup.restore(target, paths.folder, above=above, tables_only=tables_only)
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
                unverified,
                lost=await asyncio.to_thread(read_losses, paths.database),
                remarks=tuple(remarks(backup.topology, lost_backends(store))),
            )
        finally:
            store.close()


def _read_backup(target: Path, folder: Path) -> _Backup:
    """Read the backup in *target*, which is to be restored in *folder*. Raises `Misconfigured`."""
    manifest = journal_backup.read_manifest(target)
    if not (target / CONFIG_NAME).exists():
        raise Misconfigured(f"{target} is not a complete backup: {CONFIG_NAME} is missing")
    text, moved = _rewrite_own_paths(read(target / CONFIG_NAME), folder)
    topology = load_text(text, folder).topology(folder)
    return _Backup(manifest, target / journal_backup.DATABASE, text, moved, topology)


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


def _rewrite_own_paths(text: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Return the config *text* for the site in *folder*, with its journal and master key inside that folder, and the
    settings that named a path outside, with that path. If there are any, comments are lost. Raises `Misconfigured`."""
    config, tables = load_text(text, folder), tables_of(text)
    moved: dict[str, str] = {}
    for section, setting, inside in _OWN_PATHS:
        path = getattr(getattr(config, section), setting)
        if not _is_inside(folder / path, folder):
            tables.setdefault(section, {})[setting] = inside
            moved[f"{section}.{setting}"] = path
    if not moved:
        return text, moved
    text = tomli_w.dumps(tables)
    load_text(text, folder)
    return text, moved


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether *path* is below *folder* after all symbolic links are followed."""
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root and os.path.realpath(path) != root


def _check_names(anyway: Collection[str], without: Collection[str], topology: Topology) -> None:
    for name in (*anyway, *without):
        if name not in topology.backends:
            raise Misconfigured(f"the backup's config names no backend {name!r}")
    for name in anyway:
        if name in without:
            raise Misconfigured(f"backend {name!r} cannot be both claimed anyway and left out")


def _compute_identity(backup: _Backup, tables_only: bool) -> str:
    """Return a digest that differs between restores of different backups. The backends that are left out are not part
    of it, since a second attempt may leave out more of them."""
    text = json.dumps([backup.manifest.to_dict(), backup.config, tables_only], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_key(keys: MasterKeys, database: Path) -> None:
    """Check that *keys* open everything that the backup's *database* has wrapped. Raises `Misconfigured`,
    `Corrupted`."""
    store = ReadStore(database)
    try:
        for number, tenant, wrapped, key in store.query(
            "SELECT r.id, t.name, r.wrapped, r.master FROM ring_key r JOIN tenant t ON t.id = r.tenant"
        ):
            unwrap_ring_key(keys.by_id(key), number, tenant, wrapped)
        for access_key, sealed, key in store.query("SELECT access_key, secret, master FROM access_key"):
            open_secret(keys.by_id(key), access_key, sealed)
    except sqlite3.Error as error:
        raise Corrupted(f"{database} cannot be read: {error}") from error
    finally:
        store.close()


def _install_key(key: bytes, key_file: Path, path: Path) -> None:
    """Write the master key to *path*, inside the new folder. Raises `Misconfigured` if another key is there."""
    if not path.exists():
        make_folder(path.parent)
        write_file(path, key)
    elif path.read_bytes() != key:
        raise Misconfigured(f"{path}, which the interrupted restore wrote, differs from {key_file}")


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
        if place.s3 is None and not os.path.isdir(place.path):
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
        backend = await open_backend(place, writes_much=False, make=place.s3 is None, timing=timing)
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
