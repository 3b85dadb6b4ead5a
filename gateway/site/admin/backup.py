"""Back up a site: its journal and its config. `restore` makes a site of these again.

Blocks are not copied. The master key is not part of a backup either, since whoever had the backup and the blocks could
then read them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import failpoints
from gateway.config import CONFIG_NAME, load_text
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
"""For each setting of a backend that is a path: a pattern of the text before its value, and of the quoted value."""


async def backup(
    site: Site,
    target: Path,
    *,
    keep_seconds: float,
    progress: journal_backup.Progress = journal_backup.no_progress,
) -> Manifest:
    """Copy the journal and the config to *target*, which is absent or empty. The sweeper keeps the blocks that the copy
    names for *keep_seconds*.

    The config is written after the manifest, so a backup that was interrupted is never complete. Raises `Misconfigured`
    if *target* is not empty, or is inside a backend's folder."""
    site.require_writable()  # the original's backends keep no blocks for a backup that is made of a rehearsal
    _check_target(target, site.config.topology(site.folder))
    config = with_absolute_backend_paths(active_text(site.folder), site.folder)
    journal = journal_folder(site.folder, site.config)
    manifest = await journal_backup.backup(journal, target, site.journal, keep_seconds=keep_seconds, progress=progress)
    failpoints.reach("backup-told")
    write_file(target / CONFIG_NAME, config)
    return manifest


def with_absolute_backend_paths(text: str, folder: Path) -> str:
    """Return the config *text* of the site in *folder* with absolute paths in its backends, so that they are found from
    any other folder. Raises `Misconfigured` if the text is written in a way that is not recognized."""
    rewritten = text
    for pattern in _BACKEND_PATHS:
        rewritten = pattern.sub(
            lambda match: match[1] + _toml_string(str(folder.absolute() / match[2][1:-1])), rewritten
        )
    before = load_text(text, folder.absolute()).topology(folder.absolute())
    if load_text(rewritten, Path("/elsewhere")).topology(Path("/elsewhere")).backends != before.backends:
        raise Misconfigured(f"{folder / CONFIG_NAME}: write the backends' paths as absolute paths, then back up again")
    return rewritten


def _toml_string(text: str) -> str:
    """Return *text* as a basic string of TOML. The text of the config is edited, not written anew, to keep comments."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_target(target: Path, topology: Topology) -> None:
    """Check that *target* is not inside a backend's folder: the backend would list it among its blocks, and the backup
    would be lost with them. Raises `Misconfigured`."""
    for place in topology.backends.values():
        if place.s3 is None and target.resolve().is_relative_to(Path(place.path).resolve()):
            raise Misconfigured(f"{target} is inside the folder of backend {place.name!r}: choose another place")
