"""Backing a site up, and making it anew from that: its journal and its config. Blocks stay where they are.

The master key is not in a backup, since whoever finds the backup beside the blocks could then read them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from backends import errors as backend_errors
from gateway import failpoints
from gateway.config import CONFIG_NAME, load, load_text
from gateway.errors import Misconfigured
from gateway.journal import backup as journal_backup
from gateway.journal.backup import Manifest
from gateway.journal.paths import JournalPaths
from gateway.journal.sqlite.reading import ReadStore
from gateway.site.claiming import claim_all
from gateway.site.files import write_file
from gateway.site.founding import begin, finish
from gateway.site.guarded import site_row
from gateway.site.in_force import text_in_force
from gateway.site.opening import open_backend
from gateway.site.paths import journal_folder, master_key
from gateway.site.ring import Ring
from gateway.topology import Topology

if TYPE_CHECKING:
    from gateway.site.site import Site

_BACKEND_PATHS = [
    re.compile(rf"(?ms)(^\[backends\.[^\]\n]+\][^\[]*?^{setting}\s*=\s*)(\"[^\"\n]+\"(?!\")|'[^'\n]+'(?!'))")
    for setting in ("path", "secret_key_file", "ca_file")
]


class Restored(NamedTuple):
    site: str
    incarnation: int
    until_ns: int
    """Until when the blocks that it names were kept for it; behind that some may be gone."""


async def backup(
    site: Site,
    target: Path,
    *,
    keep_seconds: float,
    progress: journal_backup.Progress = journal_backup.no_progress,
) -> Manifest:
    """Copy journal and config to *target*, which is absent or empty, and lies in no backend's folder. Blocks that it
    names stay for *keep_seconds*.

    Raises `Misconfigured`."""
    _check_apart(target, site.config.topology(site.folder))
    text = with_absolute_backends(text_in_force(site.folder), site.folder)
    folder = journal_folder(site.folder, site.config)
    made = await journal_backup.backup(folder, target, site.journal, keep_seconds=keep_seconds, progress=progress)
    failpoints.reach("backup-told")
    write_file(target / CONFIG_NAME, text)
    return made


async def restore(target: Path, folder: Path, key_file: Path) -> Restored:
    """Make the site that was backed up to *target* anew in *folder*, with its master key from *key_file*.

    It claims the backends in a new incarnation. Cut short, it can be run again. Raises `Misconfigured`, `Damaged`."""
    manifest = journal_backup.read_manifest(target)
    if not (target / CONFIG_NAME).exists():
        raise Misconfigured(f"{target} is no whole backup: {CONFIG_NAME} is missing")
    key = key_file.read_bytes()
    begin(folder, "restore")
    write_file(folder / CONFIG_NAME, (target / CONFIG_NAME).read_bytes())
    config = load(folder)
    write_file(master_key(folder, config), key)
    topology = config.topology(folder)
    paths = JournalPaths(journal_folder(folder, config))
    if not paths.database.exists():
        above = await _greatest_incarnation(topology, manifest.site)
        journal_backup.restore(target, paths.folder, above=above)
    store = ReadStore(paths.database)
    try:
        _check_ring_keys(Ring(master_key(folder, config), store), store)
        failpoints.reach("restore-made")
        await claim_all(topology, store)
        restored = Restored(*site_row(store), manifest.until_ns)
    finally:
        store.close()
    finish(folder)
    return restored


def with_absolute_backends(text: str, folder: Path) -> str:
    """A config whose backends are where they were, also when it is read in another folder. Raises `Misconfigured`."""
    made = text
    for pattern in _BACKEND_PATHS:
        made = pattern.sub(lambda found: found[1] + _quoted(folder.absolute() / found[2][1:-1]), made)
    before = load_text(text, folder.absolute()).topology(folder.absolute())
    if load_text(made, Path("/elsewhere")).topology(Path("/elsewhere")).backends != before.backends:
        raise Misconfigured(f"{folder / CONFIG_NAME}: write the backends' paths as absolute ones, then back up again")
    return made


def _check_apart(target: Path, topology: Topology) -> None:
    """A backend would have it for what nobody names, and it would be lost with the blocks."""
    for place in topology.backends.values():
        if place.s3 is None and target.resolve().is_relative_to(Path(place.path).resolve()):
            raise Misconfigured(f"{target} lies in the folder of backend {place.name!r}: choose one elsewhere")


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _greatest_incarnation(topology: Topology, site: str) -> int:
    """The greatest incarnation of *site* whose marker a backend bears; 0 if none does. Raises `Misconfigured` for one
    that bears another site's, before anything was made."""
    greatest = 0
    for place in topology.backends.values():
        try:
            backend = await open_backend(place, writes_much=False, make=True)
            try:
                held = await backend.marker()
            finally:
                await backend.close()
        except backend_errors.BackendError as error:
            raise Misconfigured(str(error)) from error
        if held is not None and held.site != site:
            told = f"it belongs to site {held.site}, and the backup is of site {site}"
            raise Misconfigured(f"backend {place.name!r}: {told}")
        greatest = max(greatest, held.incarnation if held is not None else 0)
    return greatest


def _check_ring_keys(ring: Ring, store: ReadStore) -> None:
    """See that the master key is the right one. Raises `Misconfigured` or `Damaged` if it is not."""
    for (ring_key,) in store.query("SELECT id FROM ring_key"):
        ring.ring_key(ring_key)
