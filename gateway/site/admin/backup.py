"""Backing a site up: its journal and its config. Blocks stay where they are; `restore` makes a site of it again.

The master key is not in a backup, since whoever finds the backup beside the blocks could then read them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import failpoints
from gateway.config import CONFIG_NAME, load_text
from gateway.config.writing import quoted
from gateway.errors import Misconfigured
from gateway.journal.history import backup as journal_backup
from gateway.journal.history.backup import Manifest
from gateway.site.active_config import active_text
from gateway.site.paths import journal_folder
from gateway.site.storage.atomic_files import write_file
from gateway.topology import Topology

if TYPE_CHECKING:
    from gateway.site.site import Site

_BACKEND_PATHS = [
    re.compile(rf"(?ms)(^\[backends\.[^\]\n]+\][^\[]*?^{setting}\s*=\s*)(\"[^\"\n]+\"(?!\")|'[^'\n]+'(?!'))")
    for setting in ("path", "secret_key_file", "ca_file")
]


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
    text = with_absolute_backends(active_text(site.folder), site.folder)
    folder = journal_folder(site.folder, site.config)
    made = await journal_backup.backup(folder, target, site.journal, keep_seconds=keep_seconds, progress=progress)
    failpoints.reach("backup-told")
    write_file(target / CONFIG_NAME, text)
    return made


def with_absolute_backends(text: str, folder: Path) -> str:
    """A config whose backends are where they were, also when it is read in another folder. Raises `Misconfigured`."""
    made = text
    for pattern in _BACKEND_PATHS:
        made = pattern.sub(lambda found: found[1] + quoted(str(folder.absolute() / found[2][1:-1])), made)
    before = load_text(text, folder.absolute()).topology(folder.absolute())
    if load_text(made, Path("/elsewhere")).topology(Path("/elsewhere")).backends != before.backends:
        raise Misconfigured(f"{folder / CONFIG_NAME}: write the backends' paths as absolute ones, then back up again")
    return made


def _check_apart(target: Path, topology: Topology) -> None:
    """A backend would have it for what nobody names, and it would be lost with the blocks."""
    for place in topology.backends.values():
        if place.s3 is None and target.resolve().is_relative_to(Path(place.path).resolve()):
            raise Misconfigured(f"{target} lies in the folder of backend {place.name!r}: choose one elsewhere")
