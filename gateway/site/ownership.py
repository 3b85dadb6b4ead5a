"""Whose a site is. Root may open anybody's, and what it made there its owner could not read any more."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from gateway.config import Config
from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths
from gateway.site.paths import journal_folder

ROOT = 0


def require_owner(folder: Path, config: Config) -> None:
    """See that this is not root over another user's site. Raises `Misconfigured`, which says whose it is.

    A new master key, a pack written anew, the folder of a lock: each would be root's alone, and the site's own
    processes would end at it. Other users need no word of ours: they cannot open what they may not. The journal says
    whose the site is, for people edit the config, and a volume that is mounted belongs to whom it likes."""
    if os.geteuid() != ROOT:
        return
    database = JournalPaths(journal_folder(folder, config)).database
    try:
        owner = database.stat().st_uid
        if owner == ROOT or owner == _of_what_is_made(database.parent):
            return
    except OSError:
        return  # whoever opens it says why it cannot
    user = _name(owner)
    raise Misconfigured(
        f"{folder} belongs to user {user}: do this as that user (`sudo -u '{user}' …`), for what root makes there that "
        "user could not read"
    )


def _of_what_is_made(folder: Path) -> int:
    """Whose a file is that this process makes there: some mounts give all of theirs to one user."""
    with tempfile.TemporaryFile(dir=folder) as made:
        return os.fstat(made.fileno()).st_uid


def _name(uid: int) -> str:
    """As the machine calls them; `#NUMBER`, which sudo takes too, where it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
