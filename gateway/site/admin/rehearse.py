"""Rehearse a restore: make a read-only site of a backup, beside the original.

The folder passes through the same states as that of a restore (`restore.py`), without those that concern backends. The
journal's database says that it is a rehearsal before it gets its name.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from gateway.config import CONFIG_NAME, load
from gateway.errors import Misconfigured
from gateway.journal.history import backup as journal_backup
from gateway.journal.paths import JournalPaths
from gateway.site.admin.backup_source import check_key, compute_identity, install_key, read_backup
from gateway.site.admin.create_site import unfinished_site
from gateway.site.admin.takeover_plan import BackendUse, read_backend_uses
from gateway.site.paths import journal_folder, master_key
from gateway.site.storage.atomic_files import write_file
from gateway.timing import timing_from_environment


class RehearsedSite(NamedTuple):
    site: str
    """The site's id."""
    incarnation: int
    """The incarnation of the backup."""
    number: int
    """The number of the last record in the backup."""
    made_ns: int
    until_ns: int
    """Until then the original keeps the blocks that the backup names."""
    backends: tuple[BackendUse, ...]


async def rehearse(target: Path, folder: Path, key_file: Path, *, tables_only: bool = False) -> RehearsedSite:
    """Make a rehearsal of the backup in *target* in *folder*, with the master key in *key_file*. *tables_only*: see
    `restore`. After an interruption the command can be run again.

    Raises `Misconfigured`, `Corrupted`, and `OSError` if *key_file* cannot be read."""
    backup = read_backup(target, folder, rehearsal=True)
    key = key_file.read_bytes()
    await asyncio.to_thread(check_key, key, key_file, backup.database)
    uses = await read_backend_uses(backup, timing_from_environment())
    for use in uses:
        if use.other_site:
            raise Misconfigured(f"backend {use.backend!r}: {use.why}")
    manifest = backup.manifest
    with unfinished_site(folder, "restore", compute_identity(backup, "rehearsal", tables_only)):
        write_file(folder / CONFIG_NAME, backup.config)
        config = load(folder)
        install_key(key, key_file, master_key(folder, config))
        paths = JournalPaths(journal_folder(folder, config))
        if not paths.database.exists():
            await asyncio.to_thread(journal_backup.rehearse, target, paths.folder, tables_only=tables_only)
    return RehearsedSite(
        manifest.site, manifest.incarnation, manifest.number, manifest.made_ns, manifest.until_ns, uses
    )
