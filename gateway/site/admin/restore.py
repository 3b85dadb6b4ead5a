"""Restoring a site from a backup: its journal, its config and its master key, in a folder of their own.

**What a restore may write.** Only what lies inside the new folder, and the markers of the backends that it takes over.
A backup's config may name the journal's folder or the master key by an absolute path, which is the original's: the
restored site keeps both inside its own folder, and its config says so.

**What is checked first.** The master key opens everything that the backup has wrapped, before anything is made. The
folder bears a mark that names the backup: a restore that was cut short can be run again, one of another backup cannot
go on in its place.

**Without a backend.** A backend that is gone for good can be left out. The restored site has given it up, as after
`entrepot backend lost --forget`: nobody asks it, nothing is put there, and its copies count as gone. This is recorded
before any backend is claimed, and the new folder is no site before both are done. So a restore that failed since a
backend was away can be run again without it; what was given up once stays so.
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
from typing import Any, NamedTuple

from backends import errors as backend_errors
from gateway import failpoints
from gateway.blocks.fsck.findings import FsckReport
from gateway.blocks.fsck.table_check import check_tables
from gateway.config import CONFIG_NAME, load, load_text
from gateway.config.loading import read, tables_of
from gateway.config.writing import to_toml
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
from gateway.site.admin.lost_objects import Losses, given_up
from gateway.site.admin.restore_without import check_left_out, give_up, lost_in
from gateway.site.paths import journal_folder, master_key
from gateway.site.storage.agreement import credible_incarnation
from gateway.site.storage.atomic_files import write_file
from gateway.site.storage.backend_factory import open_backend
from gateway.site.storage.marker_guard import site_row
from gateway.timing import Timing, timing_from_environment
from gateway.topology import BackendPlace, Topology

_OWN_PATHS = (("journal", "path", "journal"), ("sealing", "master_key", "master.key"))
"""Settings that name what belongs to one site alone, and what each becomes where it names a place outside."""


class Restored(NamedTuple):
    site: str
    incarnation: int
    until_ns: int
    """Until when the blocks that it names were kept for it; behind that some may be gone."""
    moved: dict[str, str]
    """Settings of the backup's config that named a place outside the new folder, with what they said there. The
    restored config names a place inside it."""
    unclaimed: dict[str, str]
    """Backends that were left as they are, and why. The restored site writes nothing there."""
    unverified: str = ""
    """What could not be verified, where the tables alone were restored."""
    lost: Losses | None = None
    """What cannot be read, by the journal, since it lies on backends that were given up and nowhere else; None if no
    backend was given up."""
    remarks: tuple[str, ...] = ()
    """What should be changed in the config of the restored site, since backends were given up."""


async def restore(
    target: Path,
    folder: Path,
    key_file: Path,
    *,
    anyway: Collection[str] = (),
    without: Collection[str] = (),
    tables_only: bool = False,
) -> Restored:
    """Make the site that was backed up to *target* anew in *folder*, with its master key from *key_file*.

    It claims the backends in a new incarnation; *anyway* names those that it claims although none of the blocks that
    should lie there does. *without* names those that are gone for good: the restored site gives them up as lost. These,
    and what the backup's site had given up, are not asked. *tables_only*: the journal is damaged; take the tables as
    they are, and begin its chain of hashes anew. Cut short, it can be run again. Raises `Misconfigured`,
    `Corrupted`."""
    manifest = journal_backup.read_manifest(target)
    if not (target / CONFIG_NAME).exists():
        raise Misconfigured(f"{target} is not a complete backup: {CONFIG_NAME} is missing")
    text, moved = _own_config(read(target / CONFIG_NAME), folder)
    _check_names(anyway, without, load_text(text, folder).topology(folder))
    without = frozenset(without)
    gone = check_left_out(target / journal_backup.DATABASE, without, load_text(text, folder).topology(folder).backends)
    key = key_file.read_bytes()
    _check_key(master.parse(key, key_file), target / journal_backup.DATABASE)
    with unfinished_site(folder, "restore", _identity(manifest, text, tables_only)):
        write_file(folder / CONFIG_NAME, text)
        config = load(folder)
        _put_key(key, key_file, master_key(folder, config))
        topology = config.topology(folder)
        paths, timing = JournalPaths(journal_folder(folder, config)), timing_from_environment()
        if not paths.database.exists():
            with _saying_what_may_help():
                above = await _greatest_incarnation(topology, gone, manifest, timing)
            journal_backup.restore(target, paths.folder, above=above, tables_only=tables_only)
        give_up(paths, without, timing)
        unverified = await asyncio.to_thread(_unverified, paths.database, manifest) if tables_only else ""
        store = ReadStore(paths.database)
        try:
            failpoints.reach("restore-made")
            with _saying_what_may_help():
                unclaimed = await claim_all(topology, store, timing, anyway=anyway)
            lost = await asyncio.to_thread(lost_in, paths.database)
            told = tuple(remarks(topology, given_up(store)))
            return Restored(*site_row(store), manifest.until_ns, moved, unclaimed, unverified, lost, told)
        finally:
            store.close()


@contextmanager
def _saying_what_may_help() -> Iterator[None]:
    """Add to the error of a backend that cannot be used that it can be left out."""
    try:
        yield
    except Misconfigured as error:
        cause = error.__cause__
        if isinstance(cause, backend_errors.BackendError) and not isinstance(cause, backend_errors.OwnedByAnotherSite):
            hint = f". If that backend is gone for good, leave it out: --without {cause.backend}"
            raise Misconfigured(f"{error}{hint}") from cause
        raise


def _own_config(text: str, folder: Path) -> tuple[str, dict[str, str]]:
    """The config in *text* for the site in *folder*, whose journal and master key lie inside it; and the settings that
    named a place outside. Comments are lost where there are such. Raises `Misconfigured`."""
    config, tables = load_text(text, folder), tables_of(text)
    moved: dict[str, str] = {}
    for section, setting, inside in _OWN_PATHS:
        named = getattr(getattr(config, section), setting)
        if not _is_inside(folder / named, folder):
            tables.setdefault(section, {})[setting] = inside
            moved[f"{section}.{setting}"] = named
    if not moved:
        return text, moved
    text = to_toml(tables)
    load_text(text, folder)
    return text, moved


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether *path* is *folder*'s alone: below it, whatever symbolic links there are."""
    root = os.path.realpath(folder)
    return os.path.commonpath([root, os.path.realpath(path)]) == root and os.path.realpath(path) != root


def _check_names(anyway: Collection[str], without: Collection[str], topology: Topology) -> None:
    for name in (*anyway, *without):
        if name not in topology.backends:
            raise Misconfigured(f"the backup's config names no backend {name!r}")
    for name in anyway:
        if name in without:
            raise Misconfigured(f"backend {name!r} cannot be both claimed anyway and left out")


def _identity(manifest: Manifest, text: str, tables_only: bool) -> str:
    """What tells this restore of this backup from every other one. Not the backends that are left out: more of them may
    be when it is run again."""
    said = json.dumps([manifest.to_dict(), text, tables_only], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _check_key(keys: MasterKeys, database: Path) -> None:
    """See that *keys* open everything that the backup's *database* has wrapped. Raises `Misconfigured` or
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


def _put_key(key: bytes, key_file: Path, path: Path) -> None:
    """Write the master key to *path*, inside the new folder. Raises `Misconfigured` where another one lies there."""
    if not path.exists():
        make_folder(path.parent)
        write_file(path, key)
    elif path.read_bytes() != key:
        raise Misconfigured(f"{path}, which the restore that was cut short has put there, is not {key_file}")


def _unverified(database: Path, manifest: Manifest) -> str:
    """What is not known of tables that were restored without their records. In a thread."""
    report = FsckReport()
    check_tables(database, report, lambda done, total: None)
    count = report.kinds.total()
    found = f"they contradict themselves {count} time(s)" if count else "they do not contradict themselves"
    return (
        f"NOT verified: whether the tables are what the {manifest.number} records of the backup's journal made; "
        f"{found}. Those records are gone, and the chain of hashes begins anew"
    )


async def _greatest_incarnation(topology: Topology, gone: Collection[str], manifest: Manifest, timing: Timing) -> int:
    """The greatest incarnation of the backup's site whose marker a backend bears, as far as it is credible
    (`agreement`); 0 if none does. Those that are *gone* are not asked. Raises `Misconfigured` for a marker of another
    site, before anything was made."""
    site, heard = manifest.site, dict[str, int]()
    for place in topology.backends.values():
        if place.name in gone:
            continue
        if place.s3 is None and not os.path.isdir(place.path):
            continue  # `claim_all` makes it if no block should lie there
        try:
            backend = await open_backend(place, writes_much=False, make=place.s3 is None, timing=timing)
        except backend_errors.Misconfigured as error:
            if not _may_be_made(place):
                raise Misconfigured(str(error)) from error
            continue
        except backend_errors.BackendError as error:
            raise Misconfigured(str(error)) from error
        try:
            held = await backend.marker()
        except backend_errors.BackendError as error:
            raise Misconfigured(str(error)) from error
        finally:
            await backend.close()
        if held is not None and held.site != site:
            told = f"it belongs to site {held.site}, and the backup is of site {site}"
            raise Misconfigured(f"backend {place.name!r}: {told}")
        if held is not None:
            heard[place.name] = held.incarnation
    return credible_incarnation(topology.backends, heard, manifest.incarnation)


def _may_be_made(place: BackendPlace) -> bool:
    return place.s3 is not None and place.s3.create_bucket


def plain(restored: Restored, folder: Path, *, aged: bool) -> dict[str, Any]:
    """Plain values."""
    lost = None if restored.lost is None else restored.lost._asdict()
    return {"folder": str(folder), **restored._asdict(), "lost": lost, "aged": aged}
